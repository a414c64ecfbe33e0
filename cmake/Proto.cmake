# add_proto_library(TARGET FILE...): C++ messages and, where a file has a service, gRPC stubs.
function(add_proto_library target)
  add_library(${target} STATIC ${ARGN})
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf gRPC::grpc++)
  target_include_directories(${target} SYSTEM PUBLIC ${CMAKE_CURRENT_BINARY_DIR})
  protobuf_generate(TARGET ${target} LANGUAGE cpp IMPORT_DIRS ${CMAKE_CURRENT_SOURCE_DIR})
  protobuf_generate(TARGET ${target} LANGUAGE grpc IMPORT_DIRS ${CMAKE_CURRENT_SOURCE_DIR}
    GENERATE_EXTENSIONS .grpc.pb.h .grpc.pb.cc
    PLUGIN "protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>")
endfunction()
