# SCANSERVE_COMMIT: what `git describe` says at configure time, "unknown" outside a git work tree.
find_package(Git QUIET)
set(SCANSERVE_COMMIT "")
if(GIT_FOUND)
  execute_process(
    COMMAND ${GIT_EXECUTABLE} describe --always --dirty --tags
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE SCANSERVE_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT SCANSERVE_COMMIT)
  set(SCANSERVE_COMMIT "unknown")
endif()
