# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingModuleSource=false
# (matplotlib is in an environment of its own, build/bench/plots, with which report.py runs this file.)
"""Draws what it is given as JSON: `plots.py FIGURES.json FOLDER`. Knows nothing of the benchmark."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt  # after the backend is chosen

SIZE = (6.4, 3.4)
GREY = "#888888"


def draw(figure: dict[str, Any], folder: Path) -> None:
    """Draw one figure: lines of points, or bars by name."""
    picture, axes = plt.subplots(figsize=SIZE, layout="constrained")
    for line in figure["lines"]:
        axes.plot(line["x"], line["y"], marker="o", label=line["label"])
    if figure.get("log_x", True):
        axes.set_xscale("log")
        ticks = sorted({x for line in figure["lines"] for x in line["x"]})
        axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_title(figure["title"], fontsize=10)
    axes.set_xlabel(figure["x"], fontsize=9)
    axes.set_ylabel(figure["y"], fontsize=9)
    axes.grid(color=GREY, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if len(figure["lines"]) > 1:
        axes.legend(fontsize=8, frameon=False)
    # The same figures give the same bytes: no date, no random ids.
    picture.savefig(folder / f"{figure['name']}.svg", metadata={"Date": None})
    plt.close(picture)


def main() -> None:
    """Draw every figure."""
    mpl.rcParams["svg.hashsalt"] = "bench"
    mpl.rcParams["svg.fonttype"] = "none"
    for figure in json.loads(Path(sys.argv[1]).read_text()):
        draw(figure, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
