# add_operator_family(NAME): puts the files of kernels/ops/NAME into the targets that need them.
# spec.cc is what the client links too; the rest computes.
function(add_operator_family name)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/ops/${name})
  target_sources(scanserve_spec PRIVATE ${folder}/spec.cc)
  target_sources(scanserve_kernels PRIVATE ${folder}/op.cc ${folder}/reference.cc ${ARGN})
endfunction()
