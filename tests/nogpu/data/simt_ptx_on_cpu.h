// What the headers of simt take from kt's wrappers of PTX besides block_on_cpu.h.
namespace kt::ptx {
inline unsigned held_shared_address(const void* pointer) { return shared_address(pointer); }
inline void store_release(unsigned* flag, unsigned value) { *flag = value; }
inline unsigned load_acquire(const unsigned* flag) {
  cpu::yield();
  return *flag;
}
}  // namespace kt::ptx
template <class T> void __stcg(T* to, T value) { *to = value; }
template <class T> T __ldcg(const T* from) { return *from; }
