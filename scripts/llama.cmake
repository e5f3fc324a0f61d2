# Read by the build of llama-cpp-python behind its own first line (CMAKE_PROJECT_llama_cpp_INCLUDE): llama.cpp's library
# of helpers for its own programs is left out, which nothing of the binding is linked with.
set(LLAMA_BUILD_COMMON OFF)
