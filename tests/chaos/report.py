"""What a run ended in, as one table for people and for docs/reliability.md. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.ledger import Ledger

COLUMNS = (
    "shape", "seed", "faults", "publishes acknowledged", "refused", "cues owed", "told by cue", "re-read",
    "lost", "repeated", "worst recovery, s", "p99 calm, ms", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One finished run of one plan against one shape of Redis."""

    shape: str
    server: str
    """What the server calls itself, and its version."""
    seed: int
    plan: str
    ledger: Ledger
    seconds: float


def table(runs: Sequence[Run]) -> str:
    """Return the runs in Markdown."""
    rows = [_row(run) for run in runs]
    rule = ["---", *["--:"] * (len(COLUMNS) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in ([*COLUMNS], rule, *rows))


def by_fault(runs: Sequence[Run]) -> str:
    """Return, for each fault that had a group of its own, its worst recovery per shape, in Markdown."""
    shapes = list(dict.fromkeys(run.shape for run in runs))
    names = sorted({name for run in runs for name in run.ledger.recoveries if " " not in name})
    lines = [f"| fault, alone | {' | '.join(shapes)} |", f"|---|{'--:|' * len(shapes)}"]
    for name in names:
        cells = [_worst([run for run in runs if run.shape == shape], name) for shape in shapes]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(run: Run) -> str:
    """Return what is wrong with a run, or nothing."""
    wrong = [*(f"lost: {each}" for each in run.ledger.lost), *(f"late: {each}" for each in run.ledger.late)]
    if not wrong:
        return ""
    replay = f'make chaos CHAOS="--shapes {run.shape} --seeds {run.seed}"'
    return "\n".join([f"{run.shape}, seed {run.seed} ({replay}):", *wrong, f"plan: {run.plan}"])


def _row(run: Run) -> list[str]:
    ledger = run.ledger
    numbers = (
        run.seed, ledger.faults.total(), ledger.acknowledged, ledger.refused, ledger.owed, ledger.cued,
        ledger.reread, len(ledger.lost), ledger.repeated,
    )  # fmt: skip
    calm = f"{1000 * ledger.percentile(0.99):.0f}"
    return [
        run.shape,
        *(f"{number:,}" for number in numbers),
        f"{ledger.worst:.2f}",
        calm,
        f"{run.seconds:.0f}",
    ]


def _worst(runs: Sequence[Run], name: str) -> str:
    found = [run.ledger.recoveries[name] for run in runs if name in run.ledger.recoveries]
    return f"{max(found):.2f} s" if found else "-"
