"""Shared memory of a kernel whose launches need different amounts: no thread takes from another what it was granted."""

import shutil
import subprocess
from pathlib import Path

import pytest

GRANT = Path(__file__).parents[2] / "export" / "smem_grant.cuh"

# In the driver's place. The first call comes in while another thread's is between its turn and its return.
PROGRAM = r"""
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <thread>
enum cudaError_t { cudaSuccess, cudaErrorInvalidValue };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaDevAttrMaxSharedMemoryPerBlockOptin };
struct cudaFuncAttributes { std::size_t sharedSizeBytes; };
struct Step { const void* kernel; int number; int smem_bytes; };
constexpr int kDevices = 2, kFunctions = 1;
std::atomic<int> allowed{0}, asked{0};
std::atomic<bool> refuses{true};
cudaError_t grant(const Step& step, int ordinal) noexcept;
cudaError_t cudaDeviceGetAttribute(int* value, int, int) { return *value = 232448, cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
  found->sharedSizeBytes = 448;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, int, int bytes) {
  if (refuses || bytes + 448 > 232448) return cudaErrorInvalidValue;
  allowed = bytes;
  const int before = asked++;
  if (before % 2 == 0) std::thread([kernel, before] { grant({kernel, 0, 50000}, before / 2); }).join();
  return cudaSuccess;
}
#include "smem_grant.cuh"
int main() {
  if (grant({&allowed, 0, 100000}, 0) == cudaSuccess) return 1;  // and it is not taken to be granted
  refuses = false;
  for (int ordinal = 0; ordinal < 3; ++ordinal) {  // the last one is not remembered
    allowed = 0;
    if (grant({&allowed, 0, 100000}, ordinal) != cudaSuccess || allowed < 100000) return 2;
    if (asked != 2 * ordinal + 2) return 3;
  }
  if (grant({&allowed, 0, 200000}, 0) != cudaSuccess || grant({&allowed, 0, 10}, 1) != cudaSuccess) return 4;
  if (asked != 6) return 5;
  return allowed == 232000 ? 0 : 6;
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to run the header's text on the CPU")
def test_a_grant_never_goes_down(tmp_path: Path) -> None:
    """Asked for while another thread asks, refused at first, for more than before, on more GPUs than are kept."""
    (tmp_path / "grant.cpp").write_text(PROGRAM)
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{GRANT.parent}", "-o", "grant"]
    subprocess.run(["g++", *options, "grant.cpp"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "grant"], check=False).returncode == 0
