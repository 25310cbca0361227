"""Public originals: parsed, checked and kept; a wrong one never gets through."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from augmask.errors import DataError
from augmask_bench import public

ORIGINAL = {
    "a.data": "1, x , 0, 1\n2,y,1,0\n",
    "a.test": "|a remark\n3, x., 0, 0\n4,, 1, 0\n",
}
ENTRY = {
    "members": ["a.data", "a.test"],
    "header": ["n", "c", "is_p", "is_q"],
    "comment": "|",
    "rstrip": {"c": "."},
    "joined": {"is": {"prefix": "is_", "else": "none"}},
    "numeric": ["n"],
    "target": "c",
    "size": [3, 3],
}


def archive(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for name, text in files.items():
            packed.writestr(f"folder/{name}", text)
    return content.getvalue()


@pytest.fixture
def served(tmp_path, monkeypatch) -> Path:
    """Return the file behind the address of the table `toy`."""
    monkeypatch.delenv("AUGMASK_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "toy.zip"
    file.write_bytes(archive(ORIGINAL))
    expected = pd.DataFrame(
        {"n": [1, 2, 3], "c": ["x", "y", "x"], "is": ["q", "p", "none"]}
    )
    entry = {
        **ENTRY,
        "url": file.as_uri(),
        "fingerprint": public.fingerprint(expected, ["n"]),
    }
    monkeypatch.setattr(public, "known_tables", lambda: {"toy": entry})
    return file


def test_original_is_parsed_checked_and_kept(served):
    frame = public.public_table("toy")
    assert frame.to_dict("list") == {
        "n": [1, 2, 3],
        "c": ["x", "y", "x"],
        "is": ["q", "p", "none"],
    }
    served.unlink()
    assert public.public_table("toy").equals(frame)  # from the cache


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({**ORIGINAL, "a.data": "1, x , 0, 1\n2,z,1,0\n"}, "another fingerprint"),
        ({**ORIGINAL, "a.data": "1, x , 0, 1\n"}, "has 2 and 3"),
        ({"a.data": ORIGINAL["a.data"]}, "cannot read the archive"),
    ],
)
def test_wrong_original_is_refused_and_not_kept(served, files, message):
    served.write_bytes(archive(files))
    with pytest.raises(DataError, match=message):
        public.public_table("toy")
    assert not list(public.cache_folder().glob("*"))


def test_without_network_the_message_names_a_fix(served):
    served.unlink()
    with pytest.raises(DataError, match="cannot download the table") as caught:
        public.public_table("toy")
    assert "toy.csv.gz" in str(caught.value)
    assert "AUGMASK_DATA" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folder_of_the_user_comes_first_and_is_checked_too(
    served, tmp_path, monkeypatch
):
    frame = public.public_table("toy").assign(is_p=[0, 1, 0], is_q=[1, 0, 0])
    monkeypatch.setenv("AUGMASK_DATA", str(tmp_path))
    columns = ["n", "c", "is_p", "is_q"]
    frame[columns].to_csv(tmp_path / "toy.csv.gz", index=False)
    assert public.public_table("toy")["is"].tolist() == ["q", "p", "none"]
    frame[columns].assign(n=[1, 2, 9]).to_csv(tmp_path / "toy.csv.gz", index=False)
    with pytest.raises(DataError, match=r"toy\.csv\.gz differs"):
        public.public_table("toy")


@pytest.mark.parametrize("name", public.known_tables())
def test_every_entry_can_be_used(name):
    entry = public.known_tables()[name]
    assert {"target", "task", "size"} <= entry.keys()
    assert "made_by" in entry or "numeric" in entry or "categorical" in entry
    if "url" in entry:
        assert entry["url"].startswith("https://")
        assert entry["members"]
