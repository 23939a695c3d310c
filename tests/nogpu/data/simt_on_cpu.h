// Runs gemm_simt for one problem and compares it with the definition.

// One operand as it lies in memory, with an allocation that ends with its last element.
template <class T>
struct Matrix {
  int rows, columns, pitch;
  long long stride;
  std::vector<char> memory;
  T* data;
  Matrix(int rows, int columns, int batch, int extra, int shift, unsigned seed)
      : rows(rows), columns(columns), pitch(columns + extra) {
    stride = (long long)rows * pitch;
    const long long count = rows ? batch * stride - extra : 0;
    memory.resize((count + shift) * sizeof(T) + 64);
    data = reinterpret_cast<T*>((reinterpret_cast<unsigned long long>(memory.data()) + 15) / 16 * 16) + shift;
    for (long long i = 0; i < count; ++i) {
      seed = seed * 1103515245 + 12345;
      data[i] = T(int(seed >> 16) % 3 - 1);
    }
    cpu::readable.push_back({reinterpret_cast<char*>(data), reinterpret_cast<char*>(data + count)});
  }
  double at(int b, int r, int c) const { return double(data[b * stride + (long long)r * pitch + c]); }
};

template <class Traits, bool A_ALONG_K, bool B_ALONG_K>
void run(int m, int n, int k, int batch, int split, int extra, int shift, double beta) {
  using TIn = typename Traits::TIn;
  using TAcc = typename Traits::TAcc;
  cpu::readable.clear();
  Matrix<TIn> a(A_ALONG_K ? m : k, A_ALONG_K ? k : m, batch, extra, shift, 1);
  Matrix<TIn> b(B_ALONG_K ? n : k, B_ALONG_K ? k : n, batch, extra, shift, 2);
  Matrix<TAcc> c(m, n, batch, extra, 0, 3);
  std::vector<double> before((long long)batch * m * n);
  for (long long i = 0; i < (long long)before.size(); ++i) before[i] = c.at(i / n / m, i / n % m, i % n);
  std::vector<TAcc> slices((long long)split * batch * m * n + 4);
  kt::GemmArguments args{};
  args.a = a.data; args.b = b.data; args.c = c.data; args.workspace = slices.data();
  args.alpha = 1; args.beta = beta;
  args.lda = a.pitch; args.ldb = b.pitch; args.ldc = c.pitch;
  args.stride_a = a.stride; args.stride_b = b.stride; args.stride_c = c.stride;
  args.m = m; args.n = n; args.k = k; args.batch = batch; args.split_k = split; args.raster_group = 2;
  const long long blocks = (long long)kt::cdiv(m, Traits::BLOCK_M) * kt::cdiv(n, Traits::BLOCK_N) * split * batch;
  for (unsigned i = 0; i < blocks; ++i) cpu::run_cluster(i, 1, Traits::kThreads, [&] { kt::gemm_simt<Traits>(args); });
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
