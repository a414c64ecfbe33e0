// list, describe, health: what the server says about itself.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/scanctl/commands.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "scanserve/v1/kernel_service.pb.h"

namespace scanserve::scanctl {
namespace {

std::string TextOf(const v1::Attribute& attribute) {
  const absl::StatusOr<AttributeValue> value = FromProto(attribute);
  return value.ok() ? ToString(*value) : "?";
}

std::string ShapesOf(const v1::TensorDescription& tensor) {
  return absl::StrJoin(tensor.shapes(), " or ",
                       [](std::string* out, const v1::ShapeDescription& shape) {
                         absl::StrAppend(out, "[", absl::StrJoin(shape.dims(), ", "), "]");
                       });
}

void PrintTensors(const v1::OperatorDescription& op, bool outputs, std::ostream& out) {
  out << (outputs ? "  outputs\n" : "  inputs\n");
  for (const v1::TensorDescription& tensor : op.tensors()) {
    if (tensor.output() != outputs) continue;
    std::string notes = tensor.dtype();
    if (tensor.optional()) absl::StrAppend(&notes, ", optional");
    if (!tensor.differentiable()) absl::StrAppend(&notes, ", no gradient");
    out << absl::StrFormat("    %-14s %s (%s)\n", tensor.name(), ShapesOf(tensor), notes);
    out << absl::StrFormat("    %-14s %s\n", "", tensor.doc());
  }
}

void PrintAxes(const v1::OperatorDescription& op, std::ostream& out) {
  out << "  axes\n";
  for (const v1::AxisDescription& axis : op.axes()) {
    out << absl::StrFormat("    %-14s %d to %d: %s\n", axis.name(), axis.min(), axis.max(),
                           axis.doc());
  }
  for (const std::string& constraint : op.constraints()) out << "    " << constraint << "\n";
}

void PrintAttributes(const v1::OperatorDescription& op, std::ostream& out) {
  if (op.attributes_size() == 0) return;
  out << "  attributes\n";
  for (const v1::AttributeDescription& attribute : op.attributes()) {
    std::string notes = absl::StrCat("default ", TextOf(attribute.default_value()));
    if (attribute.allowed_size() > 0) {
      absl::StrAppend(&notes, ", one of ",
                      absl::StrJoin(attribute.allowed(), " ",
                                    [](std::string* text, const v1::Attribute& value) {
                                      absl::StrAppend(text, TextOf(value));
                                    }));
    }
    out << absl::StrFormat("    %-14s %s (%s)\n", attribute.name(), attribute.doc(), notes);
  }
}

void PrintModels(const v1::OperatorDescription& op, std::ostream& out) {
  out << "  models\n";
  for (const v1::ModelDescription& model : op.models()) {
    out << "    " << model.name() << "\n      takes "
        << absl::StrJoin(model.required_inputs(), " ");
    if (model.optional_inputs_size() > 0) {
      out << " [" << absl::StrJoin(model.optional_inputs(), " ") << "]";
    }
    out << "\n      returns " << absl::StrJoin(model.outputs(), " ");
    if (model.optional_outputs_size() > 0) {
      out << " [" << absl::StrJoin(model.optional_outputs(), " ") << "]";
    }
    out << "\n";
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> ServerFlags::Connect() const {
  ClientOptions options;
  SCANSERVE_ASSIGN_OR_RETURN(options.protocol, ParseProtocol(protocol));
  return Client::Connect(address, options);
}

absl::StatusOr<int> List(const ServerFlags& server, std::ostream& out) {
  SCANSERVE_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, server.Connect());
  SCANSERVE_ASSIGN_OR_RETURN(const v1::DescribeResponse response, client->Describe());
  for (const v1::OperatorDescription& op : response.operators()) {
    out << op.name() << "\n  " << op.summary() << "\n  models: "
        << absl::StrJoin(op.models(), " ",
                         [](std::string* text, const v1::ModelDescription& model) {
                           absl::StrAppend(text, model.name());
                         })
        << "\n  implementations: " << absl::StrJoin(op.implementations(), " ")
        << "\n  dtypes: " << absl::StrJoin(op.dtypes(), " ") << "\n";
  }
  return kOk;
}

absl::StatusOr<int> DescribeOp(const ServerFlags& server, const std::string& op,
                               std::ostream& out) {
  SCANSERVE_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, server.Connect());
  SCANSERVE_ASSIGN_OR_RETURN(const v1::DescribeResponse response, client->Describe(op));
  for (const v1::OperatorDescription& description : response.operators()) {
    out << description.name() << ": " << description.summary() << "\n";
    out << "  source: " << description.source() << "\n";
    out << "  T is one of " << absl::StrJoin(description.dtypes(), " ") << "\n";
    PrintAxes(description, out);
    PrintTensors(description, /*outputs=*/false, out);
    PrintTensors(description, /*outputs=*/true, out);
    PrintAttributes(description, out);
    PrintModels(description, out);
    out << "  implementations: " << absl::StrJoin(description.implementations(), " ") << "\n";
  }
  return kOk;
}

absl::StatusOr<int> Health(const ServerFlags& server, const std::string& service,
                           std::ostream& out) {
  SCANSERVE_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, server.Connect());
  SCANSERVE_ASSIGN_OR_RETURN(const bool serving, client->IsServing(service));
  out << (serving ? "SERVING" : "NOT_SERVING") << "\n";
  return serving ? kOk : kFailed;
}

}  // namespace scanserve::scanctl
