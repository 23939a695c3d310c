// Whole numbers that know when they have no value, as after a division by zero or beyond 62 bits; and what is true or
// false of them. Both mean what they mean in Python, from whose expressions the functions below are printed: `/` rounds
// down and `%` has the sign of the divisor.
struct Int {
  long long value;
  bool valid;
  constexpr Int(long long number, bool has_value = true) noexcept : value(number), valid(has_value) {}
};

struct Truth {
  bool value;
  bool valid;
  constexpr Truth(bool truth, bool has_value = true) noexcept : value(truth), valid(has_value) {}
};

constexpr bool holds(Truth a) noexcept { return a.valid && a.value; }
constexpr bool fails(Truth a) noexcept { return !holds(a); }
constexpr Int number(Truth a) noexcept { return {a.value ? 1 : 0, a.valid}; }

// A result of 64-bit arithmetic that wraps around, if `estimate` says that it did not.
constexpr Int checked(unsigned long long result, double estimate, bool valid) noexcept {
  const bool fits = valid && estimate < 4.6e18 && estimate > -4.6e18;
  return {fits ? static_cast<long long>(result) : 0, fits};
}
constexpr unsigned long long bits(Int a) noexcept { return static_cast<unsigned long long>(a.value); }
constexpr double real(Int a) noexcept { return static_cast<double>(a.value); }

constexpr Int operator+(Int a, Int b) noexcept {
  return checked(bits(a) + bits(b), real(a) + real(b), a.valid && b.valid);
}
constexpr Int operator-(Int a, Int b) noexcept {
  return checked(bits(a) - bits(b), real(a) - real(b), a.valid && b.valid);
}
constexpr Int operator-(Int a) noexcept { return Int(0) - a; }
constexpr Int operator*(Int a, Int b) noexcept {
  return checked(bits(a) * bits(b), real(a) * real(b), a.valid && b.valid);
}
constexpr Int operator/(Int a, Int b) noexcept {
  if (b.value == 0) return {0, false};
  const long long quotient = a.value / b.value;
  const bool down = a.value % b.value != 0 && (a.value < 0) != (b.value < 0);
  return {down ? quotient - 1 : quotient, a.valid && b.valid};
}
constexpr Int operator%(Int a, Int b) noexcept {
  if (b.value == 0) return {0, false};
  const long long rest = a.value % b.value;
  return {rest != 0 && (rest < 0) != (b.value < 0) ? rest + b.value : rest, a.valid && b.valid};
}
constexpr Int cdiv(Int a, Int b) noexcept {
  if (b.value == 0) return {0, false};
  const long long quotient = a.value / b.value;
  const bool up = a.value % b.value != 0 && (a.value < 0) == (b.value < 0);
  return {up ? quotient + 1 : quotient, a.valid && b.valid};
}
constexpr Int power(Int a, Int b) noexcept {
  Int result(1, b.valid && b.value >= 0 && b.value <= 64);
  for (long long i = 0; i < b.value && result.valid; ++i) result = result * a;
  return result;
}
constexpr Int least(Int a, Int b) noexcept { return {a.value < b.value ? a.value : b.value, a.valid && b.valid}; }
constexpr Int most(Int a, Int b) noexcept { return {a.value > b.value ? a.value : b.value, a.valid && b.valid}; }

constexpr Truth operator==(Int a, Int b) noexcept { return {a.value == b.value, a.valid && b.valid}; }
constexpr Truth operator!=(Int a, Int b) noexcept { return {a.value != b.value, a.valid && b.valid}; }
constexpr Truth operator<(Int a, Int b) noexcept { return {a.value < b.value, a.valid && b.valid}; }
constexpr Truth operator<=(Int a, Int b) noexcept { return {a.value <= b.value, a.valid && b.valid}; }
constexpr Truth operator>(Int a, Int b) noexcept { return {a.value > b.value, a.valid && b.valid}; }
constexpr Truth operator>=(Int a, Int b) noexcept { return {a.value >= b.value, a.valid && b.valid}; }

// What stands behind an operator that decides without it need not have a value.
constexpr Truth operator!(Truth a) noexcept { return {!a.value, a.valid}; }
constexpr Truth operator&&(Truth a, Truth b) noexcept { return a.valid && a.value ? b : a; }
constexpr Truth operator||(Truth a, Truth b) noexcept { return a.valid && !a.value ? b : a; }
constexpr Int choose(Truth a, Int yes, Int no) noexcept {
  return !a.valid ? Int(0, false) : a.value ? yes : no;
}
constexpr Truth choose(Truth a, Truth yes, Truth no) noexcept {
  return !a.valid ? Truth(false, false) : a.value ? yes : no;
}
