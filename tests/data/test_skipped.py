from collections import Counter

import pytest

from scfs.data.files import read_folder
from scfs.data.folder_walk import BROKEN_LINK
from scfs.data.skipped import skipped_by_suffix, skipped_files, unused_folders
from scfs.errors import UserError


@pytest.mark.parametrize(
    ("skipped", "words"),
    [
        ({".heic": 1}, "1 file skipped because of its suffix (1 .heic)"),
        ({".heic": 2, ".cr2": 1}, "3 files skipped because of their suffix (2 .heic, 1 .cr2)"),
        ({BROKEN_LINK: 1}, "1 broken link skipped"),
        ({BROKEN_LINK: 2, ".gpx": 1}, "1 file skipped because of its suffix (1 .gpx), 2 broken links skipped"),
    ],
)
def test_skipped_files_in_words(skipped, words):
    assert skipped_files(Counter(skipped)) == words


def test_only_folders_of_photos_have_any(photos):
    (photos / "notes.txt").touch()
    assert skipped_by_suffix(str(photos)) == {".txt": 1}
    for source in ("scenes", f"coco:{photos}", str(photos / "cats" / "0.jpg")):
        assert not skipped_by_suffix(source)
        assert not unused_folders(source)


def test_a_folder_of_broken_links_is_refused(tmp_path):
    (tmp_path / "links").mkdir()
    for i in range(2):
        (tmp_path / "links" / f"{i}.jpg").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match=r"No images under .*; it has 2 broken links\."):
        read_folder(tmp_path / "links")
