# Interface target that every target of the project links privately.
add_library(scanserve_warnings INTERFACE)
target_compile_options(scanserve_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wswitch-enum -Wnon-virtual-dtor
  # GCC 12 sees overlaps in std::string that are none (its bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${SCANSERVE_WERROR}>:-Werror>)
