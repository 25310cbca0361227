"""A record says at what commit its run was trained."""

from __future__ import annotations

import pytest

from augmask_bench.run import commit


@pytest.fixture(autouse=True)
def forgotten():
    commit.cache_clear()
    yield
    commit.cache_clear()


def test_what_the_environment_says_counts(monkeypatch):
    """The repository of a copied checkout may be older than its files."""
    monkeypatch.setenv("AUGMASK_COMMIT", "b10b27e5f0aa")
    assert commit() == "b10b27e5f0aa"


def test_otherwise_the_repository_says_it(monkeypatch):
    monkeypatch.delenv("AUGMASK_COMMIT", raising=False)
    assert "b10b27e5f0aa" not in commit()
