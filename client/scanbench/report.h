// How the matrix is printed.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "client/scanbench/matrix.h"
#include "client/scanbench/published.h"

namespace scanserve::scanbench {

// What ran the rows.
struct Setting {
  std::string op;
  std::string device;
  std::string transport;
};

// One table, and what its columns count.
void PrintTable(const Setting& setting, const std::vector<MatrixRow>& rows, std::ostream& out);

// One JSON object per row, with the column names of the published records.
void PrintJsonLines(const Setting& setting, const std::vector<MatrixRow>& rows, std::ostream& out);

// The published medians beside ours, each under the name of its device.
void PrintComparison(const Setting& setting, const std::vector<MatrixRow>& rows,
                     const std::vector<PublishedRow>& published, std::ostream& out);

}  // namespace scanserve::scanbench
