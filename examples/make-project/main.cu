// A network of two layers, each a product that kt has tuned: output = (input W1') W2'.

#include "kt_gemm.cuh"

#include <cstdio>
#include <cstdlib>
#include <vector>

using Number = __nv_bfloat16;

constexpr int kRows = 512, kFeatures = 1024, kHidden = 4096;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

// y = x w', where x is [rows, in] and w is [out, in].
struct Layer {
  kt::Query query;
  const Number* weights;

  Layer(int in, int out, const Number* w) : weights(w) {
    query.m = kRows;
    query.n = out;
    query.k = in;
    query.dtype = kt::Format::bf16;
    query.layout = kt::Layout::nt;
  }

  void run(const Number* x, Number* y, void* workspace, long long bytes, cudaStream_t stream) const {
    const kt::Result result = kt::gemm(query, 1.0, x, weights, 0.0, y, workspace, bytes, stream);
    if (result.status == kt::Status::ok) return;
    std::fprintf(stderr, "kt::gemm ended with status %d (%s)\n", static_cast<int>(result.status),
                 cudaGetErrorString(result.error));
    std::exit(1);
  }
};

// Values that bf16 holds exactly, in a repeated pattern.
std::vector<Number> pattern(int count, int period) {
  std::vector<Number> values;
  for (int i = 0; i < count; ++i) values.push_back(__float2bfloat16(static_cast<float>(i % period - period / 2) / 64));
  return values;
}

Number* on_gpu(const std::vector<Number>& values) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, values.size() * sizeof(Number)));
  check(cudaMemcpy(memory, values.data(), values.size() * sizeof(Number), cudaMemcpyHostToDevice));
  return static_cast<Number*>(memory);
}

float at(const std::vector<Number>& values, int index) { return __bfloat162float(values[static_cast<std::size_t>(index)]); }

// One element of the output, computed on the host, with the hidden layer rounded as on the GPU.
float expected(const std::vector<Number>& x, const std::vector<Number>& w1, const std::vector<Number>& w2, int row, int column) {
  double sum = 0;
  for (int h = 0; h < kHidden; ++h) {
    double hidden = 0;
    for (int f = 0; f < kFeatures; ++f) hidden += static_cast<double>(at(x, row * kFeatures + f)) * at(w1, h * kFeatures + f);
    sum += static_cast<double>(__bfloat162float(__float2bfloat16(static_cast<float>(hidden)))) * at(w2, column * kHidden + h);
  }
  return static_cast<float>(sum);
}

int main() {
  const std::vector<Number> x = pattern(kRows * kFeatures, 13), w1 = pattern(kHidden * kFeatures, 11), w2 = pattern(kFeatures * kHidden, 7);
  Number *input = on_gpu(x), *hidden = on_gpu(pattern(kRows * kHidden, 1)), *output = on_gpu(pattern(kRows * kFeatures, 1));
  const Layer first(kFeatures, kHidden, on_gpu(w1)), second(kHidden, kFeatures, on_gpu(w2));

  // Asked for once, for all calls: kt::gemm itself allocates nothing and waits for nothing.
  long long bytes = 0;
  for (const Layer* layer : {&first, &second}) {
    const long long needed = kt::workspace_bytes(layer->query);
    if (needed > bytes) bytes = needed;
  }
  void* workspace = nullptr;
  if (bytes > 0) check(cudaMalloc(&workspace, static_cast<std::size_t>(bytes)));

  cudaStream_t stream;
  cudaEvent_t begin, end;
  check(cudaStreamCreate(&stream));
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  constexpr int kRuns = 100;
  for (int i = 0; i <= kRuns; ++i) {
    if (i == 1) check(cudaEventRecord(begin, stream));
    first.run(input, hidden, workspace, bytes, stream);
    second.run(hidden, output, workspace, bytes, stream);
  }
  check(cudaEventRecord(end, stream));
  check(cudaStreamSynchronize(stream));
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end));
  std::printf("%.1f us for both layers; %llu of %d calls found the configuration that was tuned for their shape\n",
              1000 * milliseconds / kRuns, kt::calls(kt::Found::exact), 2 * (kRuns + 1));

  std::vector<Number> result(static_cast<std::size_t>(kRows) * kFeatures);
  check(cudaMemcpy(result.data(), output, result.size() * sizeof(Number), cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < 20; ++i) {
    const int row = i * 97 % kRows, column = i * 331 % kFeatures;
    const float want = expected(x, w1, w2, row, column), got = at(result, row * kFeatures + column);
    if (!(std::abs(got - want) <= 0.01f * std::abs(want) + 0.01f)) ++wrong;
  }
  std::printf("%d of 20 elements differ from the host's\n", wrong);
  return wrong == 0 ? 0 : 1;
}
