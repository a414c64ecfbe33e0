// The contract of selective_scan.
#include "kernels/spec/op_spec.h"

namespace scanserve {
namespace {

// Forward: the exp takes 6 issue slots; delta*A, the state update and the product with C one each.
// Backward recomputes the forward and adds the reverse scan: 29 in all with forward.
Work SelectiveScanWork(const Dims& dims, Direction direction) {
  const double states = static_cast<double>(dims["batch"]) * static_cast<double>(dims["seqlen"]) *
                        static_cast<double>(dims["dim"]) * static_cast<double>(dims["dstate"]);
  Work work;
  work.exps = states * (direction == Direction::kForward ? 1 : 2);
  work.fma_slots = states * (direction == Direction::kForward ? 9 : 29);
  return work;
}

bool GroupsDivideDim(const Dims& dims) { return dims["dim"] % dims["ngroups"] == 0; }

}  // namespace

const OpSpec& SelectiveScanSpec() {
  static const auto* const spec = new OpSpec{
      .name = "selective_scan",
      .summary =
          "h_t = exp(delta_t A) h_{t-1} + delta_t u_t B_t;  y_t = (<C_t, h_t> + D u_t) silu(z_t)",
      .source =
          "Gu and Dao, Mamba (arXiv:2312.00752), section 3; state-spaces/mamba "
          "selective_scan_ref. Unlike there, the gradient of final_state is honoured.",
      .dtypes = {DType::kFP32, DType::kFP64},
      .axes =
          {
              {.name = "batch", .doc = "independent sequences"},
              {.name = "seqlen", .doc = "time steps"},
              {.name = "dim", .doc = "channels, each with its own recurrence"},
              {.name = "dstate", .max = 1024, .doc = "state size per channel"},
              {.name = "ngroups",
               .doc = "groups of neighbouring channels that share B and C",
               .absent = 1},
              {.name = "nseq",
               .max = 65536,
               .doc = "sequences: batch, or the packed ones of cu_seqlens (at most 65536)"},
          },
      .tensors =
          {
              {.name = "u",
               .forms = {{"bld", {"batch", "seqlen", "dim"}}},
               .doc = "input sequence",
               .distribution = {Distribution::Kind::kNormal, 0, 1}},
              {.name = "delta",
               .forms = {{"bld", {"batch", "seqlen", "dim"}}},
               .doc = "step size, before delta_bias and softplus",
               .distribution = {Distribution::Kind::kUniform, 0.001, 0.1}},
              {.name = "A",
               .forms = {{"dn", {"dim", "dstate"}}},
               .dtype = DTypeRule::kParameter,
               .doc = "state matrix itself (not its logarithm), negative for a stable scan",
               .distribution = {Distribution::Kind::kUniform, -8, -0.5}},
              {.name = "B",
               .forms = {{"per_step", {"batch", "seqlen", "dstate"}},
                         {"grouped", {"batch", "seqlen", "ngroups", "dstate"}},
                         {"constant", {"dim", "dstate"}}},
               .doc = "input projection, by step, by step and group, or constant in time",
               .distribution = {Distribution::Kind::kNormal, 0, 1}},
              {.name = "C",
               .forms = {{"per_step", {"batch", "seqlen", "dstate"}},
                         {"grouped", {"batch", "seqlen", "ngroups", "dstate"}},
                         {"constant", {"dim", "dstate"}}},
               .doc = "output projection, by step, by step and group, or constant in time",
               .distribution = {Distribution::Kind::kNormal, 0, 1}},
              {.name = "D",
               .forms = {{"d", {"dim"}}},
               .dtype = DTypeRule::kParameter,
               .optional = true,
               .doc = "skip connection",
               .distribution = {Distribution::Kind::kNormal, 0, 1}},
              {.name = "z",
               .forms = {{"bld", {"batch", "seqlen", "dim"}}},
               .optional = true,
               .doc = "gate: y is multiplied by silu(z)",
               .distribution = {Distribution::Kind::kNormal, 0, 1}},
              {.name = "delta_bias",
               .forms = {{"d", {"dim"}}},
               .dtype = DTypeRule::kParameter,
               .optional = true,
               .doc = "added to delta before softplus",
               .distribution = {Distribution::Kind::kUniform, -0.05, 0.05}},
              {.name = "initial_state",
               .forms = {{"sdn", {"nseq", "dim", "dstate"}}},
               .dtype = DTypeRule::kParameter,
               .optional = true,
               .doc = "state before the first step; zero when absent",
               .distribution = {Distribution::Kind::kNormal, 0, 1}},
              {.name = "cu_seqlens",
               .forms = {{"offsets", {"nseq+1"}}},
               .dtype = DTypeRule::kIndex,
               .optional = true,
               .differentiable = false,
               .doc = "starts of the packed sequences and their total length; batch must be 1",
               .distribution = {Distribution::Kind::kOffsets}},
              {.name = "y",
               .role = Role::kOutput,
               .forms = {{"bld", {"batch", "seqlen", "dim"}}},
               .doc = "output sequence"},
              {.name = "final_state",
               .role = Role::kOutput,
               .forms = {{"sdn", {"nseq", "dim", "dstate"}}},
               .dtype = DTypeRule::kParameter,
               .doc = "state after the last step, before C, D and z"},
          },
      .attributes = {{.name = "delta_softplus",
                      .default_value = false,
                      .doc = "delta becomes log(1 + exp(delta + delta_bias))"}},
      .constraints = {{"dim must be a multiple of ngroups of 'B' and 'C'", GroupsDivideDim}},
      .batch_axis = "batch",
      .packing = Packing{},
      .work = SelectiveScanWork,
  };
  return *spec;
}

}  // namespace scanserve
