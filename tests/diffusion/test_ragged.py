"""Flat categoricals against one torch softmax per column."""

from __future__ import annotations

import torch

from augmask.diffusion.ragged import Ragged

CARDS = (2, 1, 5, 3)


def _columns(flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return flat.split(CARDS, dim=1)


def test_softmax_cross_entropy_and_argmax_equal_a_loop_over_columns():
    generator = torch.Generator().manual_seed(0)
    ragged = Ragged(CARDS).double()
    logits = 5 * torch.randn(7, sum(CARDS), generator=generator, dtype=torch.float64)
    codes = torch.stack(
        [torch.randint(k, (7,), generator=generator) for k in CARDS], dim=1
    )
    parts = _columns(logits)
    torch.testing.assert_close(
        ragged.softmax(logits), torch.cat([p.softmax(1) for p in parts], 1)
    )
    torch.testing.assert_close(
        ragged.cross_entropy(logits, codes),
        torch.stack(
            [
                torch.nn.functional.cross_entropy(p, codes[:, j], reduction="none")
                for j, p in enumerate(parts)
            ],
            dim=1,
        ),
    )
    assert torch.equal(
        ragged.argmax(logits), torch.stack([p.argmax(1) for p in parts], 1)
    )


def test_a_column_far_below_the_others_does_not_underflow():
    ragged = Ragged((2, 2))
    logits = torch.tensor([[0.0, 0.0, -500.0, -501.0]])
    expected = torch.tensor([-500.0, -501.0]).log_softmax(0)
    result = ragged.cross_entropy(logits, torch.tensor([[0, 1]]))
    torch.testing.assert_close(result[0, 1], -expected[1])


def test_a_table_without_categorical_columns():
    ragged = Ragged(())
    empty = torch.empty(3, 0)
    assert ragged.softmax(empty).shape == (3, 0)
    assert ragged.cross_entropy(empty, empty.long()).shape == (3, 0)
    assert ragged.argmax(empty).shape == (3, 0)
    assert ragged.draw(empty, torch.Generator()).shape == (3, 0)
    assert ragged.one_hot(empty.long(), empty).shape == (3, 0)


def test_codes_are_drawn_in_proportion_to_the_weights():
    ragged = Ragged(CARDS)
    weights = torch.tensor([3.0, 1.0, 0.2, 0.0, 5.0, 1.0, 2.0, 2.0, 7.0, 1.0, 0.0])
    n = 40_000
    codes = ragged.draw(weights.expand(n, -1), torch.Generator().manual_seed(0))
    result = ragged.one_hot(codes, weights).mean(0)
    expected = ragged.normalise(weights[None])[0]
    # five standard errors; a weight of zero never wins
    error = 5 * (expected * (1 - expected) / n).sqrt()
    assert ((result - expected).abs() <= error + 1e-6).all()
    assert result[[3, 10]].tolist() == [0.0, 0.0]
