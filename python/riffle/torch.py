"""Per-example gradients of PyTorch models, for ``riffle.gradients``.

Needs PyTorch 2, or PyTorch 1.13 with functorch.
"""

from typing import Any, Callable, Dict, Mapping, Tuple, Union

import numpy as np
import torch

from .errors import Error, UsageError

try:  # PyTorch 2
    from torch.func import functional_call, grad, vmap
except ImportError:
    functional_call = None
    try:
        from functorch import grad, make_functional_with_buffers, vmap
    except ImportError:
        raise Error("riffle.torch needs torch.func (PyTorch 2) or functorch") from None

Theta = Union["np.ndarray[Any, Any]", Mapping[str, "np.ndarray[Any, Any]"]]


class PerExample:
    """The gradients of a model's loss for each example alone. Made by ``per_example``.

    ``initial`` are the model's parameters by name, as ``riffle.gradients`` takes them.
    """

    def __init__(self, model: torch.nn.Module, loss: Callable[[Any, Any], Any]) -> None:
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                raise UsageError(f"{name or 'the model'} is a {type(module).__name__}, which mixes the examples of a batch: an example's gradient would show others; GroupNorm or LayerNorm does not")
        self.model, self.loss = model, loss
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not trained:
            raise UsageError("the model has no parameters to train")
        self._shapes: Dict[str, Tuple[int, ...]] = {name: tuple(p.shape) for name, p in trained.items()}
        self._places = {name: p.device for name, p in trained.items()}
        self.initial: Dict[str, "np.ndarray[Any, Any]"] = {name: p.detach().cpu().numpy().astype(np.float32) for name, p in trained.items()}
        self._gradient = vmap(grad(self._one_loss), in_dims=(None, 0, 0), randomness="different")

    def _one_loss(self, parameters: Dict[str, Any], x: Any, y: Any) -> Any:
        return self.loss(self._call(parameters, x.unsqueeze(0)), y.unsqueeze(0)).sum()

    def _call(self, parameters: Dict[str, Any], x: Any) -> Any:
        if functional_call is not None:
            return functional_call(self.model, parameters, (x,))
        if not hasattr(self, "_functional"):
            function, values, buffers = make_functional_with_buffers(self.model)
            self._functional = function, dict(zip([n for n, _ in self.model.named_parameters()], values)), buffers
        function, values, buffers = self._functional
        return function([parameters.get(name, value) for name, value in values.items()], buffers, x)

    def _tensors(self, theta: Theta) -> Dict[str, Any]:
        if not isinstance(theta, Mapping):
            flat, theta, at = np.asarray(theta), {}, 0
            for name, shape in self._shapes.items():
                size = int(np.prod(shape))
                theta[name] = flat[at : at + size].reshape(shape)
                at += size
        return {name: torch.tensor(np.asarray(theta[name]), device=place) for name, place in self._places.items()}

    def __call__(self, theta: Theta, x: Any, y: Any) -> Dict[str, "np.ndarray[Any, Any]"]:
        """Return the gradient of each example's loss at theta: arrays by name, whose first dimension is the example."""
        x, y = torch.as_tensor(x), torch.as_tensor(y)
        n = len(x)
        if n == 1:  # functorch of PyTorch 1.13 fails on batches of one
            x, y = torch.cat([x, x]), torch.cat([y, y])
        found = self._gradient(self._tensors(theta), x, y)
        return {name: g[:n].detach().cpu().numpy() for name, g in found.items()}

    def outputs(self, theta: Theta, x: Any) -> Any:
        """Return the model's outputs at theta, as a tensor without gradients."""
        with torch.no_grad():
            return self._call(self._tensors(theta), torch.as_tensor(x))


def per_example(model: torch.nn.Module, loss: Callable[[Any, Any], Any]) -> PerExample:
    """Return a function of (theta, x, y) that computes each example's own gradient, by vmap.

    ``loss`` takes the model's outputs and the targets of a batch, such as
    ``torch.nn.functional.cross_entropy``; it sees one example at a time. A model with batch
    normalisation is refused, because it mixes examples.

    >>> import numpy as np, torch, riffle, riffle.torch
    >>> model = torch.nn.Linear(3, 2)
    >>> gradient = riffle.torch.per_example(model, torch.nn.functional.cross_entropy)
    >>> x, y = torch.rand(10, 3), torch.zeros(10, dtype=torch.int64)
    >>> @riffle.gradients(initial=gradient.initial, clients=10)
    ... def program(theta, ids):
    ...     return gradient(theta, x[ids], y[ids])
    >>> program(gradient.initial, np.arange(4))["weight"].shape
    (4, 2, 3)
    """
    return PerExample(model, loss)
