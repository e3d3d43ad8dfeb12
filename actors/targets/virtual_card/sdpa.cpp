// Which kernel scaled_dot_product_attention takes on an NVIDIA card: torch built without CUDA has
// no rule for it, and would always take the math path; one built with CUDA would ask a real card. The rules are those of torch around 2.13 for
// dense tensors (ATen/native/transformers/cuda/sdp_utils.cpp), with the checks that its headers
// share; cuDNN is one that takes head dimensions up to 128, or 192 with values of 128.
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

namespace {

using sdp::SDPBackend;
using sdp::sdp_params;

int major_version = 0;
int minor_version = 0;

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

bool of_one_type(const sdp_params& given) {
  const auto type = given.query.scalar_type();
  return given.key.scalar_type() == type && given.value.scalar_type() == type;
}

// As the loads of the memory-efficient kernel need it; an empty tensor is never loaded.
bool is_aligned(const at::Tensor& tensor) {
  return tensor.sym_numel() == 0 || tensor.sym_storage_offset() * tensor.element_size() % 16 == 0;
}

bool is_multiple(const at::Tensor& tensor, int64_t of) {
  return tensor.sym_size(-1) > 0 && tensor.sym_size(-1) % of == 0;
}

// What all fused kernels ask of dense tensors.
template <bool supports_gqa, bool same_kv_heads, bool one_wide_may_be_strided>
bool is_dense_enough(const sdp_params& given) {
  return sdp::check_tensor_shapes(given, false) &&
      sdp::check_batch_size_and_num_heads_dense<supports_gqa, same_kv_heads>(given, false) &&
      sdp::check_nonzero_sequence_lengths_dense(given, false) &&
      sdp::check_last_dim_stride_equals_1_dense<one_wide_may_be_strided>(given, false);
}

bool takes_flash(const sdp_params& given) {
  const auto width = given.query.sym_size(-1);
  const bool consumer = (major_version == 8 && minor_version >= 6) || major_version == 12;
  // Asked only where it matters: of symbolic sizes each question is a guard.
  const auto too_wide = [&] { return width > 192 && (given.dropout > 0.0 || width <= 224); };
  const auto square = [&] { return given.query.sym_size(-2) == given.key.sym_size(-2); };
  return sdp::check_runtime_disabled_flash(given, false) &&
      sdp::check_tensor_shapes(given, false) && sdp::check_for_attn_mask(given, false) &&
      width == given.key.sym_size(-1) && width == given.value.sym_size(-1) && width <= 256 &&
      !(consumer && sdp::input_requires_grad(given) && too_wide()) &&
      (!given.is_causal || square()) &&
      of_one_type(given) && is_half(given.query) && is_dense_enough<true, true, true>(given);
}

bool takes_efficient(const sdp_params& given) {
  const int64_t aligned = is_half(given.query) ? 8 : 4;
  return sdp::check_runtime_disabled_mem_efficient(given, false) &&
      sdp::check_tensor_shapes(given, false) && of_one_type(given) &&
      (is_half(given.query) || given.query.scalar_type() == at::kFloat) &&
      given.query.sym_size(-1) == given.key.sym_size(-1) && is_multiple(given.query, aligned) &&
      is_multiple(given.value, aligned) && is_aligned(given.query) && is_aligned(given.key) &&
      is_aligned(given.value) && is_dense_enough<false, true, false>(given);
}

bool takes_cudnn(const sdp_params& given) {
  const auto width = given.query.sym_size(-1), value_width = given.value.sym_size(-1);
  const bool data_center = major_version == 9 || major_version == 10;
  const auto& context = at::globalContext();
  const bool repeatable =
      context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly();
  return context.userEnabledCuDNNSDP() && !repeatable && sdp::check_tensor_shapes(given, false) &&
      of_one_type(given) && is_half(given.query) && sdp::check_attn_mask_shape(given, false) &&
      is_multiple(given.query, 8) && is_multiple(given.value, 8) &&
      value_width <= 128 && (width <= 128 || (data_center && width == 192 && value_width == 128)) &&
      given.key.sym_size(-2) != 1 && is_dense_enough<true, false, true>(given);
}

int64_t choice(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& mask, double dropout, bool is_causal, std::optional<double>,
    bool enable_gqa) {
  const sdp_params given{query, key, value, mask, dropout, is_causal, enable_gqa};
  if (major_version == 0) {
    return static_cast<int64_t>(SDPBackend::math);
  }
  auto& context = at::globalContext();
  for (const auto backend : context.sDPPriorityOrder()) {
    const bool taken = backend == SDPBackend::cudnn_attention ? takes_cudnn(given)
        : backend == SDPBackend::flash_attention              ? takes_flash(given)
        : backend == SDPBackend::efficient_attention          ? takes_efficient(given)
        : backend == SDPBackend::math                         ? context.userEnabledMathSDP()
                                                              : false;
    if (taken) {
      return static_cast<int64_t>(backend);
    }
  }
  TORCH_CHECK(false, "No available kernel. Aborting execution.");
}

} // namespace

// From now on, if torch is imported already, SDPA is decided as on a card of this compute capability;
// where that is a data center's Hopper or Blackwell, cuDNN's kernel comes first unless an order was
// asked for. Capability 0.0 is the math path.
extern "C" __attribute__((visibility("default"))) void choose_sdpa_as_on(int major, int minor) {
  major_version = major;
  minor_version = minor;
  if (major == 9 || major == 10) {
    at::globalContext().setSDPPriorityOrder(
        {static_cast<int64_t>(SDPBackend::cudnn_attention),
         static_cast<int64_t>(SDPBackend::flash_attention),
         static_cast<int64_t>(SDPBackend::efficient_attention),
         static_cast<int64_t>(SDPBackend::math)});
  }
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choice);
}
