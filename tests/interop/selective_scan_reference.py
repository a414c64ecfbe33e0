"""The selective scan and its gradients in float64, as the paper writes them.

Shapes: u, delta, z, y [B, L, D]; A [D, N]; B, C [B, L, N]; D, delta_bias [D];
initial_state, final_state [B, D, N].
"""

import numpy as np


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _step_sizes(x, softplus):
    raw = x["delta"] + x.get("delta_bias", 0)
    return (np.log1p(np.exp(raw)), _sigmoid(raw)) if softplus else (raw, np.ones_like(raw))


def _states(x, delta):
    """h_0 .. h_L: [L + 1, B, D, N]."""
    batch, seqlen, dim = x["u"].shape
    h = np.zeros((seqlen + 1, batch, dim, x["A"].shape[1]))
    h[0] = x.get("initial_state", 0)
    for t in range(seqlen):
        decay = np.exp(delta[:, t, :, None] * x["A"])
        h[t + 1] = decay * h[t] + (delta[:, t] * x["u"][:, t])[..., None] * x["B"][:, t, None, :]
    return h


def forward(inputs, softplus=False):
    """Outputs by name."""
    x = {name: np.asarray(value, np.float64) for name, value in inputs.items()}
    delta, _ = _step_sizes(x, softplus)
    h = _states(x, delta)
    y = np.einsum("lbdn,bln->bld", h[1:], x["C"]) + x.get("D", 0) * x["u"]
    if "z" in x:
        y = y * x["z"] * _sigmoid(x["z"])
    return {"y": y, "final_state": h[-1]}


def backward(inputs, softplus=False):
    """Gradients by name, of `inputs` with the upstream gradients dy and dfinal_state among them."""
    x = {name: np.asarray(value, np.float64) for name, value in inputs.items()}
    u, A, B, C = x["u"], x["A"], x["B"], x["C"]
    delta, delta_slope = _step_sizes(x, softplus)
    h = _states(x, delta)
    dy = x.get("dy", np.zeros_like(u))
    out = {}
    if "z" in x:
        gate = _sigmoid(x["z"])
        before_gate = np.einsum("lbdn,bln->bld", h[1:], C) + x.get("D", 0) * u
        out["dz"] = dy * before_gate * gate * (1 + x["z"] * (1 - gate))
        dy = dy * x["z"] * gate
    out["dC"] = np.einsum("bld,lbdn->bln", dy, h[1:])
    out["du"] = x.get("D", 0) * dy
    out["ddelta"] = np.zeros_like(u)
    out["dA"] = np.zeros_like(A)
    out["dB"] = np.zeros_like(B)
    g = np.zeros_like(h[0]) + x.get("dfinal_state", 0)  # gradient of h_t, from the steps after t
    for t in reversed(range(u.shape[1])):
        g = g + C[:, t, None, :] * dy[:, t, :, None]
        decay = np.exp(delta[:, t, :, None] * A)
        g_B = np.einsum("bdn,bn->bd", g, B[:, t])
        w = g * decay * h[t]
        out["dB"][:, t] = np.einsum("bdn,bd->bn", g, delta[:, t] * u[:, t])
        out["du"][:, t] += delta[:, t] * g_B
        out["dA"] += np.einsum("bdn,bd->dn", w, delta[:, t])
        out["ddelta"][:, t] = np.einsum("bdn,dn->bd", w, A) + u[:, t] * g_B
        g = decay * g
    out["ddelta"] *= delta_slope
    if "D" in x:
        out["dD"] = np.einsum("bld,bld->d", dy, u)
    if "delta_bias" in x:
        out["ddelta_bias"] = out["ddelta"].sum((0, 1))
    if "initial_state" in x:
        out["dinitial_state"] = g
    return out
