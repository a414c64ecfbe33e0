"""The forward selective scan in PyTorch, in the formulations that its users write.

Each function takes u, delta [B, L, D], A [D, N], B, C [B, L, N] in FP32 and returns y [B, L, D].
"""

import functools
import importlib.metadata

import mambapy.pscan
import torch

VERSION = f"torch {torch.__version__}, mambapy {importlib.metadata.version('mambapy')}"


def eager_loop(u, delta, A, B, C):
    """One step after the other on the state [B, D, N]; decays and inputs formed beforehand."""
    a = torch.exp(delta[..., None] * A)
    b = (delta * u)[..., None] * B[:, :, None, :]
    h = a.new_zeros(a[:, 0].shape)
    y = []
    for a_t, b_t, C_t in zip(a.unbind(1), b.unbind(1), C.unbind(1)):
        h = a_t * h + b_t
        y.append(torch.einsum("bdn,bn->bd", h, C_t))
    return torch.stack(y, dim=1)


def _steps(h, u, delta, A, B, C):
    """The recurrence over one short chunk, unrolled so that the compiler fuses it."""
    y = []
    for t in range(u.shape[1]):
        delta_t = delta[:, t, :, None]
        h = torch.exp(delta_t * A) * h + delta_t * u[:, t, :, None] * B[:, t, None, :]
        y.append((h * C[:, t, None, :]).sum(-1))
    return h, torch.stack(y, dim=1)


def compiled_loop(steps, u, delta, A, B, C, chunk):
    """A compiled, unrolled chunk after the other."""
    h = u.new_zeros(u.shape[0], *A.shape)
    y = []
    for begin in range(0, u.shape[1], chunk):
        part = slice(begin, begin + chunk)
        h, y_chunk = steps(h, u[:, part], delta[:, part], A, B[:, part], C[:, part])
        y.append(y_chunk)
    return torch.cat(y, dim=1)


def doubling_scan(u, delta, A, B, C):
    """Parallel prefix by doubling: log2(L) passes over all states [B, L, D, N]."""
    a = torch.exp(delta[..., None] * A)
    h = (delta * u)[..., None] * B[:, :, None, :]
    shift = 1
    while shift < u.shape[1]:
        h = torch.cat([h[:, :shift], torch.addcmul(h[:, shift:], a[:, shift:], h[:, :-shift])], 1)
        a = torch.cat([a[:, :shift], a[:, shift:] * a[:, :-shift]], 1)
        shift *= 2
    return torch.einsum("bldn,bln->bld", h, C)


def mambapy_pscan(u, delta, A, B, C):
    """mambapy's parallel scan as it comes from PyPI."""
    a = torch.exp(delta[..., None] * A)
    b = (delta * u)[..., None] * B[:, :, None, :]
    h = mambapy.pscan.pscan(a, b)
    return (h @ C[..., None])[..., 0]


def peers(inputs, threads):
    """Name -> function without arguments that computes y."""
    torch.set_num_threads(threads)
    arguments = [torch.from_numpy(inputs[name]) for name in ("u", "delta", "A", "B", "C")]
    functions = {
        "torch loop": eager_loop,
        "torch doubling": doubling_scan,
        "mambapy pscan": mambapy_pscan,
    }
    for chunk in (8, 32):
        functions[f"torch loop compiled {chunk}"] = functools.partial(
            compiled_loop, torch.compile(_steps), chunk=chunk
        )

    def call(function):
        with torch.inference_mode():
            return function(*arguments)

    return {name: functools.partial(call, f) for name, f in functions.items()}
