"""Per-example gradients by PyTorch are those of each example alone."""

import numpy as np
import pytest

import riffle

torch = pytest.importorskip("torch")


def test_each_example_alone():
    from torch import nn

    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 6 * 6, 4))
    model[0].bias.requires_grad = False  # not trained
    gradient = riffle.torch.per_example(model, nn.functional.cross_entropy)
    assert "0.bias" not in gradient.initial
    x, y = torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 2, 3, 0])
    found = gradient(gradient.initial, x, y)
    flat = gradient(np.concatenate([a.ravel() for a in gradient.initial.values()]), x, y)
    for i in range(5):
        model.zero_grad()
        nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
        for name, p in model.named_parameters():
            if p.requires_grad:
                assert found[name].shape == (5, *p.shape)
                np.testing.assert_allclose(found[name][i], p.grad.numpy(), atol=1e-5)
                np.testing.assert_allclose(flat[name][i], found[name][i], atol=1e-6)
    np.testing.assert_allclose(gradient.outputs(gradient.initial, x), model(x).detach(), atol=1e-5)


def test_parameters_are_those_given():
    """The model's own values play no role."""
    model = torch.nn.Linear(3, 1)
    gradient = riffle.torch.per_example(model, torch.nn.functional.mse_loss)
    theta = {"weight": np.full((1, 3), 2, np.float32), "bias": np.ones(1, np.float32)}
    x = torch.eye(3)
    found = gradient(theta, x, torch.zeros(3, 1))
    np.testing.assert_allclose(found["bias"], np.full((3, 1), 6))  # 2 · (2 + 1)
    np.testing.assert_allclose(found["weight"][:, 0], 6 * np.eye(3))


def test_mixing_layers_are_refused():
    from torch import nn

    with pytest.raises(riffle.UsageError, match="1 is a BatchNorm1d, which mixes the examples"):
        riffle.torch.per_example(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), nn.functional.mse_loss)
    with pytest.raises(riffle.UsageError, match="no parameters"):
        riffle.torch.per_example(nn.ReLU(), nn.functional.mse_loss)


def test_one_example():
    """A client asks for one row. PyTorch 1.13 cannot do that by itself."""
    torch.manual_seed(2)
    model = torch.nn.Linear(2, 3)
    gradient = riffle.torch.per_example(model, torch.nn.functional.cross_entropy)
    x, y = torch.rand(3, 2), torch.tensor([0, 2, 1])
    every, one = gradient(gradient.initial, x, y), gradient(gradient.initial, x[1:2].numpy(), y[1:2].numpy())
    for name, rows in every.items():
        assert one[name].shape == (1, *rows.shape[1:])
        np.testing.assert_allclose(one[name][0], rows[1], atol=1e-6)
