// Runs a kernel for one problem and compares it with the definition.
#include <type_traits>
template <class T> double number(T value) { return double(value); }
template <> double number(unsigned short value) { return __uint_as_float(unsigned(value) << 16); }
// A 16-bit element of C. What is stored is small enough for it.
struct Bf16 {
  unsigned short bits;
  Bf16() = default;
  explicit Bf16(float value) {
    unsigned word;
    std::memcpy(&word, &value, 4);
    if (word & 0xffff) cpu::fail("not a number of this format");
    bits = (unsigned short)(word >> 16);
  }
  explicit operator float() const { return __uint_as_float(unsigned(bits) << 16); }
};
template <> double number(Bf16 value) { return double(float(value)); }
template <class T> T stored(int value) { return T(value); }
template <> Bf16 stored(int value) { return Bf16(float(value)); }
template <> unsigned short stored(int value) {
  const float number = float(value);
  unsigned bits;
  std::memcpy(&bits, &number, 4);
  return (unsigned short)(bits >> 16);
}

// One operand as it lies in memory, with an allocation that ends with its last element.
template <class T>
struct Matrix {
  int rows, columns, pitch, batch;
  long long stride;
  std::vector<char> memory;
  T* data;
  Matrix(int rows, int columns, int batch, int extra, int shift, unsigned seed)
      : rows(rows), columns(columns), pitch(columns + extra), batch(batch) {
    stride = (long long)rows * pitch + extra;
    const long long count = rows ? (batch - 1) * stride + (long long)(rows - 1) * pitch + columns : 0;
    memory.resize((count + shift) * sizeof(T) + 64);
    data = reinterpret_cast<T*>((reinterpret_cast<unsigned long long>(memory.data()) + 15) / 16 * 16) + shift;
    for (long long i = 0; i < count; ++i) data[i] = stored<T>(100);
    for (int b = 0; b < batch; ++b)
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c) {
          seed = seed * 1103515245 + 12345;
          data[b * stride + (long long)r * pitch + c] = stored<T>(int(seed >> 16) % 3 - 1);
        }
    cpu::readable.push_back({reinterpret_cast<char*>(data), reinterpret_cast<char*>(data + count)});
  }
  double at(int b, int r, int c) const { return number(data[b * stride + (long long)r * pitch + c]); }
};

// One launch of the kernel: each family has its own.
template <class Traits>
void launch(const kt::GemmArguments& args);

template <class Traits, bool A_ALONG_K, bool B_ALONG_K>
void run(int m, int n, int k, int batch, int split, int extra, int shift, double beta) {
  using TIn = typename Traits::TIn;
  using TOut = typename Traits::TOut;
  using TAcc = typename Traits::TAcc;
  cpu::readable.clear();
  // A stretch is dense; all else may have gaps.
  const bool stretch = Traits::kStretch;
  const int extra_a = stretch && Traits::STREAMED_A && A_ALONG_K ? 0 : extra;
  const int extra_b = stretch && !Traits::STREAMED_A && B_ALONG_K ? 0 : extra;
  Matrix<TIn> a(A_ALONG_K ? m : k, A_ALONG_K ? k : m, batch, extra_a, shift, 1);
  Matrix<TIn> b(B_ALONG_K ? n : k, B_ALONG_K ? k : n, batch, extra_b, shift, 2);
  Matrix<TOut> c(m, n, batch, extra, 0, 3);
  std::vector<double> before((long long)batch * m * n);
  for (long long i = 0; i < (long long)before.size(); ++i) before[i] = c.at(i / n / m, i / n % m, i % n);
  // Slices of split-K; or flags, and tiles of a few blocks.
  std::vector<TAcc> slices((long long)split * batch * m * n + (1 << 15));
  kt::GemmArguments args{};
  args.a = a.data; args.b = b.data; args.c = c.data; args.workspace = slices.data();
  args.alpha = 1; args.beta = beta;
  args.lda = a.pitch; args.ldb = b.pitch; args.ldc = c.pitch;
  args.stride_a = a.stride; args.stride_b = b.stride; args.stride_c = c.stride;
  args.m = m; args.n = n; args.k = k; args.batch = batch; args.split_k = split; args.raster_group = 1;
  launch<Traits>(args);
  for (int q = 0; q < batch; ++q)
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double want = split == 1 ? beta * before[((long long)q * m + i) * n + j] : 0;
        for (int x = 0; x < k; ++x) {
          want += (A_ALONG_K ? a.at(q, i, x) : a.at(q, x, i)) * (B_ALONG_K ? b.at(q, j, x) : b.at(q, x, j));
        }
        double got = c.at(q, i, j);
        if (split > 1) {
          got = 0;
          for (int s = 0; s < split; ++s) got += double(slices[(((long long)s * batch + q) * m + i) * n + j]);
        }
        if (got != want) {
          std::printf("%d %d %d batch %d split %d extra %d: element %d %d %d is %g, not %g\n", m, n, k, batch, split, extra,
                      q, i, j, got, want);
          std::exit(1);
        }
      }
}
