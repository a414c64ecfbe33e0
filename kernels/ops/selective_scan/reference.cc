#include "kernels/ops/selective_scan/reference.h"

#include <algorithm>
#include <cmath>

#include "common/parallel_for.h"
#include "kernels/common/math.h"

namespace scanserve::selective_scan {
namespace {

// The backward keeps the state before every so many steps and recomputes those between.
constexpr int64_t kCheckpointSteps = 64;

int64_t Checkpoints(int64_t steps) { return (steps + kCheckpointSteps - 1) / kCheckpointSteps; }

// One sequence. Channels one after the other: dB and dC add up over them.
template <typename T>
class SequenceScan {
 public:
  SequenceScan(const Args<T>& args, const ReferenceLayout& layout, Workspace workspace,
               int64_t sequence)
      : args_(args), sequence_(sequence), begin_(args.Begin(sequence)), end_(args.End(sequence)) {
    const int64_t dstate = args.dstate;
    state_ = workspace.At<double>(layout.states) + sequence * layout.state_rows * dstate;
    g_ = state_ + dstate;
    checkpoints_ = g_ + dstate;
    history_ = checkpoints_ + Checkpoints(end_ - begin_) * dstate;
    if (!args.backward) return;
    double* parameters =
        workspace.At<double>(layout.parameters) + sequence * ReferenceLayout::ParameterCount(args);
    std::fill(parameters, parameters + ReferenceLayout::ParameterCount(args), 0.0);
    da_ = parameters;
    db_ = args.B.constant ? da_ + args.dim * dstate : workspace.At<double>(layout.db);
    dc_ = args.C.constant ? da_ + 2 * args.dim * dstate : workspace.At<double>(layout.dc);
    dd_ = da_ + 3 * args.dim * dstate;
    dbias_ = dd_ + args.dim;
    ClearSteps(args.B, db_);
    ClearSteps(args.C, dc_);
  }

  void Run() {
    for (int64_t d = 0; d < args_.dim; ++d) {
      Forward(d);
      if (args_.backward) Backward(d);
    }
    if (!args_.backward) return;
    StoreSteps(args_.B, db_);
    StoreSteps(args_.C, dc_);
  }

 private:
  void ClearSteps(const Projection<T>& projection, double* sums) {
    if (projection.constant) return;
    const int64_t row = projection.groups * args_.dstate;
    std::fill(sums + begin_ * row, sums + end_ * row, 0.0);
  }

  void StoreSteps(const Projection<T>& projection, const double* sums) {
    if (projection.constant || projection.gradient == nullptr) return;
    const int64_t row = projection.groups * args_.dstate;
    for (int64_t i = begin_ * row; i < end_ * row; ++i) {
      projection.gradient[i] = static_cast<T>(sums[i]);
    }
  }

  int64_t At(int64_t t, int64_t d) const { return t * args_.dim + d; }

  // Offset of B or C, and of its gradient, at step t for channel d.
  int64_t At(const Projection<T>& projection, int64_t t, int64_t d) const {
    if (projection.constant) return d * args_.dstate;
    const int64_t group = d / (args_.dim / projection.groups);
    return (t * projection.groups + group) * args_.dstate;
  }

  int64_t StateAt(int64_t d) const { return (sequence_ * args_.dim + d) * args_.dstate; }

  // delta as it is given, plus its bias.
  double RawDelta(int64_t t, int64_t d) const {
    const double bias = args_.delta_bias == nullptr ? 0.0 : args_.delta_bias[d];
    return args_.delta[At(t, d)] + bias;
  }

  double Delta(int64_t t, int64_t d) const {
    const double raw = RawDelta(t, d);
    return args_.delta_softplus ? Softplus(raw) : raw;
  }

  double Decay(int64_t t, int64_t d, int64_t n) const {
    return std::exp(Delta(t, d) * args_.A[d * args_.dstate + n]);
  }

  // h_t from h_{t-1}; they may be the same memory.
  void Step(int64_t t, int64_t d, const double* before, double* after) const {
    const double delta = Delta(t, d);
    const double delta_u = delta * args_.u[At(t, d)];
    const T* a = args_.A + d * args_.dstate;
    const T* b = args_.B.data + At(args_.B, t, d);
    for (int64_t n = 0; n < args_.dstate; ++n) {
      after[n] = std::exp(delta * a[n]) * before[n] + delta_u * b[n];
    }
  }

  // <C_t, h_t> + D u_t
  double Project(int64_t t, int64_t d, const double* state) const {
    const T* c = args_.C.data + At(args_.C, t, d);
    double p = args_.D == nullptr ? 0.0 : static_cast<double>(args_.D[d]) * args_.u[At(t, d)];
    for (int64_t n = 0; n < args_.dstate; ++n) p += c[n] * state[n];
    return p;
  }

  void Forward(int64_t d) {
    for (int64_t n = 0; n < args_.dstate; ++n) {
      state_[n] = args_.initial_state == nullptr ? 0.0 : args_.initial_state[StateAt(d) + n];
    }
    for (int64_t t = begin_; t < end_; ++t) {
      if (args_.backward && (t - begin_) % kCheckpointSteps == 0) {
        std::copy_n(state_, args_.dstate,
                    checkpoints_ + (t - begin_) / kCheckpointSteps * args_.dstate);
      }
      Step(t, d, state_, state_);
      if (args_.y == nullptr) continue;
      const double gate = args_.z == nullptr ? 1.0 : Silu<double>(args_.z[At(t, d)]);
      args_.y[At(t, d)] = static_cast<T>(Project(t, d, state_) * gate);
    }
    if (args_.final_state == nullptr) return;
    for (int64_t n = 0; n < args_.dstate; ++n) {
      args_.final_state[StateAt(d) + n] = static_cast<T>(state_[n]);
    }
  }

  void Backward(int64_t d) {
    for (int64_t n = 0; n < args_.dstate; ++n) {
      g_[n] = args_.dfinal_state == nullptr ? 0.0 : args_.dfinal_state[StateAt(d) + n];
    }
    for (int64_t stretch = Checkpoints(end_ - begin_) - 1; stretch >= 0; --stretch) {
      const int64_t first = begin_ + stretch * kCheckpointSteps;
      const int64_t last = std::min(first + kCheckpointSteps, end_);
      std::copy_n(checkpoints_ + stretch * args_.dstate, args_.dstate, history_);
      for (int64_t t = first; t < last; ++t) {
        double* before = history_ + (t - first) * args_.dstate;
        Step(t, d, before, before + args_.dstate);
      }
      for (int64_t t = last - 1; t >= first; --t) {
        StepBack(t, d, history_ + (t - first) * args_.dstate);
      }
    }
    if (args_.dinitial_state == nullptr) return;
    for (int64_t n = 0; n < args_.dstate; ++n) {
      args_.dinitial_state[StateAt(d) + n] = static_cast<T>(g_[n]);
    }
  }

  // The gradient of <C_t, h_t> + D u_t; also stores dz.
  double ProjectBack(int64_t t, int64_t d, const double* state) {
    const double dy = args_.dy == nullptr ? 0.0 : args_.dy[At(t, d)];
    if (args_.z == nullptr) return dy;
    const double z = args_.z[At(t, d)];
    if (args_.dz != nullptr) {
      args_.dz[At(t, d)] = static_cast<T>(dy * Project(t, d, state) * SiluDerivative(z));
    }
    return dy * Silu(z);
  }

  // g_ comes as the gradient of h_t from later steps and leaves as that of h_{t-1}. `before` is
  // h_{t-1}, followed by h_t.
  void StepBack(int64_t t, int64_t d, const double* before) {
    const double* state = before + args_.dstate;
    const double delta = Delta(t, d);
    const double u = args_.u[At(t, d)];
    const double dp = ProjectBack(t, d, state);
    const T* a = args_.A + d * args_.dstate;
    const T* b = args_.B.data + At(args_.B, t, d);
    const T* c = args_.C.data + At(args_.C, t, d);
    double* db = db_ + At(args_.B, t, d);
    double* dc = dc_ + At(args_.C, t, d);
    double sum_gb = 0;
    double ddelta = 0;
    for (int64_t n = 0; n < args_.dstate; ++n) {
      const double g = g_[n] + c[n] * dp;
      dc[n] += dp * state[n];
      db[n] += g * delta * u;
      sum_gb += g * b[n];
      g_[n] = g * Decay(t, d, n);
      const double w = g_[n] * before[n];
      ddelta += w * a[n];
      da_[d * args_.dstate + n] += w * delta;
    }
    ddelta += u * sum_gb;
    if (args_.delta_softplus) ddelta *= SoftplusDerivative(RawDelta(t, d));
    const double skip = args_.D == nullptr ? 0.0 : args_.D[d];
    if (args_.du != nullptr) args_.du[At(t, d)] = static_cast<T>(skip * dp + delta * sum_gb);
    if (args_.ddelta != nullptr) args_.ddelta[At(t, d)] = static_cast<T>(ddelta);
    dd_[d] += dp * u;
    dbias_[d] += ddelta;
  }

  const Args<T>& args_;
  const int64_t sequence_;
  const int64_t begin_;  // steps, of batch * seqlen
  const int64_t end_;
  double* state_;        // [dstate]
  double* g_;            // [dstate]
  double* checkpoints_;  // [stretches][dstate]
  double* history_;      // [kCheckpointSteps + 1][dstate]
  double* da_ = nullptr;
  double* db_ = nullptr;
  double* dc_ = nullptr;
  double* dd_ = nullptr;
  double* dbias_ = nullptr;
};

// Adds the sequences' sums of the parameter gradients, in order.
template <typename T>
void StoreParameters(const Args<T>& args, const double* parameters) {
  const int64_t states = args.dim * args.dstate;
  const auto store = [&](T* gradient, int64_t offset, int64_t count) {
    if (gradient == nullptr) return;
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int64_t s = 0; s < args.sequences; ++s) {
        sum += parameters[s * ReferenceLayout::ParameterCount(args) + offset + i];
      }
      gradient[i] = static_cast<T>(sum);
    }
  };
  store(args.dA, 0, states);
  if (args.B.constant) store(args.B.gradient, states, states);
  if (args.C.constant) store(args.C.gradient, 2 * states, states);
  store(args.dD, 3 * states, args.dim);
  store(args.ddelta_bias, 3 * states + args.dim, args.dim);
}

}  // namespace

template <typename T>
ReferenceLayout::ReferenceLayout(const Args<T>& args, WorkspaceLayout& workspace) {
  int64_t longest = 0;
  for (int64_t s = 0; s < args.sequences; ++s) {
    longest = std::max(longest, args.End(s) - args.Begin(s));
  }
  state_rows = 2 + (args.backward ? Checkpoints(longest) + kCheckpointSteps + 1 : 0);
  states = workspace.Book<double>(args.sequences * state_rows * args.dstate);
  if (!args.backward) return;
  const int64_t steps = args.batch * args.seqlen * args.dstate;
  db = workspace.Book<double>(args.B.constant ? 0 : steps * args.B.groups);
  dc = workspace.Book<double>(args.C.constant ? 0 : steps * args.C.groups);
  parameters = workspace.Book<double>(args.sequences * ParameterCount(args));
}

template <typename T>
void RunReference(const Args<T>& args, const ReferenceLayout& layout, Workspace workspace) {
  ParallelFor(args.sequences,
              [&](int64_t s) { SequenceScan<T>(args, layout, workspace, s).Run(); });
  if (args.backward) StoreParameters(args, workspace.At<double>(layout.parameters));
}

template ReferenceLayout::ReferenceLayout(const Args<float>&, WorkspaceLayout&);
template ReferenceLayout::ReferenceLayout(const Args<double>&, WorkspaceLayout&);
template void RunReference(const Args<float>&, const ReferenceLayout&, Workspace);
template void RunReference(const Args<double>&, const ReferenceLayout&, Workspace);

}  // namespace scanserve::selective_scan
