"""Means and most frequent levels: what any imputer must beat."""

from __future__ import annotations

from job import LEVELS, job

if __name__ == "__main__":
    task = job()
    frame = task.frame()
    for name, kind in task.kinds.items():
        seen = frame[name].dropna()
        value = seen.mode().iloc[0] if kind in LEVELS else seen.mean()
        if kind == "integer":
            frame[name] = frame[name].astype(float)
        frame[name] = frame[name].fillna(value)
    task.write([frame])
