"""No file outside the folder is read, also when somebody swaps a directory for a link at the right moment."""

import os
import threading
from pathlib import Path

import pytest

from workers import NotFound, safe_file, safe_open
from workers.folder import Folder
from workers.paths import open_inside


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in (("docs/sub", "inside"), ("private", "secret")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "page").write_text(text)
    return (tmp_path / "docs").resolve()


def swap(root: Path) -> None:
    """Put a link that leads out of the folder where a directory was."""
    (root / "sub").rename(root / "aside")
    (root / "sub").symlink_to(root.parent / "private")


def test_a_directory_swapped_between_the_check_and_the_open_opens_nothing(root: Path) -> None:
    found = safe_file(root, "sub/page")
    swap(root)
    # The trap: the checked path leads out by now.
    assert found.read_text() == "secret"
    with pytest.raises(NotFound):
        open_inside(root, found)


def test_a_file_swapped_for_a_link_or_a_pipe_opens_nothing_and_waits_for_nobody(root: Path) -> None:
    found = safe_file(root, "sub/page")
    found.unlink()
    found.symlink_to(root.parent / "private" / "page")
    with pytest.raises(NotFound):
        open_inside(root, found)
    found.unlink()
    os.mkfifo(found)
    with pytest.raises(NotFound):
        open_inside(root, found)
    found.unlink()
    with pytest.raises(NotFound):
        open_inside(root, found)


def test_what_is_read_while_it_is_swapped_all_the_time_is_from_inside(root: Path) -> None:
    over = threading.Event()
    link, aside = root / "link", root / "aside"
    link.symlink_to(root.parent / "private")

    def swapping() -> None:
        while not over.is_set():
            # Each name is a directory at one moment and the link at the next.
            (root / "sub").rename(aside)
            link.rename(root / "sub")
            (root / "sub").rename(link)
            aside.rename(root / "sub")

    thread = threading.Thread(target=swapping)
    thread.start()
    read: set[bytes] = set()
    descriptors = _descriptors()
    try:
        for _ in range(2000):
            try:
                with safe_open(root, "sub/page") as file:
                    read.add(file.read())
            except (NotFound, FileNotFoundError):
                continue
    finally:
        over.set()
        thread.join()
    assert read == {b"inside"}
    assert _descriptors() <= descriptors


def _descriptors() -> int:
    return len([*Path("/dev/fd").iterdir()])


def test_links_that_stay_inside_are_followed(root: Path) -> None:
    (root / "alias").symlink_to(root / "sub")
    with safe_open(root, "alias/page") as file:
        assert file.read() == b"inside"
    with pytest.raises(NotFound):
        safe_open(root, "sub")


def test_a_followed_folder_does_not_publish_what_a_swapped_directory_leads_to(root: Path) -> None:
    folder = Folder(root)
    [(path, _)] = list(folder.files())
    assert folder.read(path) == b"inside"
    swap(root)
    with pytest.raises(NotFound):
        folder.read(path)
