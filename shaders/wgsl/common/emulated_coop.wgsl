// Cooperative matrices in plain WGSL, for the tests of kernels that use them (EMULATE): a subgroup is 32 threads in a
// row, whatever the device has. Thread i of it has row i mod 16 of C; A and B are read where they lie, when they are
// multiplied, so that a kernel must not write there between load and product. What there is of `+`, `-` and scalar ×
// works on C as it is. Loads and stores are made array by array in shaders/src/emulate.rs.
alias CoopA = vec3<u32>; // number of the array and its order, place, stride; 0: all zero
alias CoopB = vec3<u32>;
alias CoopC = mat4x4<f32>; // sixteen columns of a row, in fours

var<private> coop_lane: u32; // in its subgroup
var<private> coop_zero: u32; // 0, which compilers are not to know: see where it is used

fn coop_multiply_add(a: CoopA, b: CoopB, c: CoopC) -> CoopC {
  var sum = c;
  for (var i = 0u; i < 16u + coop_zero; i++) {
    sum += coop_element(a, coop_lane % 16u, i) * coop_row(b, i);
  }
  return sum;
}
