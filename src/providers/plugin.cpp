#include "providers/plugin.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "attention/error.h"
#include "attention/pages.h"
#include "device/cu_seqlens.h"
#include "files/checksum.h"
#include "flashbench/plugin.h"
#include "host/shared_library.h"
#include "providers/plugin_call.h"

namespace flashbench {

namespace {

constexpr size_t kMostText = 500;  // of a plugin's texts, to fit a table cell

// The table of functions as it was first published; later members may be missing.
constexpr size_t kFirstTableBytes = offsetof(flashbench_plugin, features);

constexpr int64_t kNoLimit = -1;  // of a window

constexpr std::array<std::string_view, 5> kPageAxes{"page_size", "kv_layout", "page_order",
                                                    "shared_prefix", "block_table"};

// Returns a plugin's text as one line that any terminal and any file can show.
std::string line(const char* text) {
  if (text == nullptr) return "";
  std::string result;
  for (; *text != '\0' && result.size() < kMostText; ++text) {
    const auto c = static_cast<unsigned char>(*text);
    result += c >= 0x20 && c < 0x7f ? *text : '?';
  }
  return result;
}

// The buffer for a plugin's sentence.
class Why {
 public:
  char* data() { return text_.data(); }
  size_t bytes() const { return text_.size(); }
  std::string text(const char* otherwise) {
    text_.back() = '\0';
    const std::string said = line(text_.data());
    return said.empty() ? otherwise : said;
  }

 private:
  std::array<char, kMostText + 1> text_{};
};

void require_ok(flashbench_status status, Why& why, const char* function) {
  if (status == FLASHBENCH_OK) return;
  const std::string reason = why.text("the plugin gives no reason");
  if (status == FLASHBENCH_OUT_OF_MEMORY) throw OutOfMemory(reason);
  throw std::runtime_error(status == FLASHBENCH_ERROR
                               ? reason
                               : fmt::format("{} returned the status {}, which is not allowed: {}",
                                             function, status, reason));
}

// The same for a function that may still refuse the problem.
void require_taken(flashbench_status status, Why& why, const char* function) {
  if (status == FLASHBENCH_UNSUPPORTED) throw Unsupported(why.text("the plugin gives no reason"));
  require_ok(status, why, function);
}

// A loaded shared object that implements the interface. It is never unloaded, because its threads
// and its thread-local state would lose their code.
class PluginLibrary {
 public:
  PluginLibrary(std::string path, const std::string& xxh3)
      : path_(std::move(path)), file_(opened(unchanged_path(xxh3))) {
    if (!file_.error().empty())
      fail(fmt::format("it cannot be loaded: {}", line(file_.error().c_str())));
    const auto version = *symbol<uint32_t>("flashbench_plugin_abi_version");
    if (version != FLASHBENCH_PLUGIN_ABI_VERSION) {
      fail(fmt::format("expected version {} of the plugin interface, found {}: rebuild it",
                       FLASHBENCH_PLUGIN_ABI_VERSION, version));
    }
    table_ = symbol<flashbench_plugin>("flashbench_plugin_table");
    require_whole_table();
  }

  const flashbench_plugin& table() const { return *table_; }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw BadInput(fmt::format("plugin {}: {}", path_, what));
  }

  // The path of a file that still has this checksum.
  const std::string& unchanged_path(const std::string& xxh3) const {
    if (const std::string now = file_checksum_text(path_); now != xxh3) {
      fail(fmt::format("the file has changed since the start: its XXH3 was {} and is now {}", xxh3,
                       now));
    }
    return path_;
  }

  static SharedLibrary opened(const std::string& path) {
    const KeptLimits limits;
    const PluginCall call(nullptr, "its loading");
    return SharedLibrary({path});
  }

  template <typename T>
  const T* symbol(const char* name) {
    const T* found = nullptr;
    file_.find(found, name);
    if (found == nullptr)
      fail(fmt::format("it is not a flashbench plugin: it does not export {}", name));
    return found;
  }

  void require_whole_table() const {
    if (table_->size < kFirstTableBytes) {
      fail(fmt::format("expected a flashbench_plugin_table of at least {} bytes, found {}",
                       kFirstTableBytes, table_->size));
    }
    if (table_->device_kind != FLASHBENCH_CPU && table_->device_kind != FLASHBENCH_CUDA) {
      fail(fmt::format("expected a device_kind of {} or {}, found {}", int{FLASHBENCH_CPU},
                       int{FLASHBENCH_CUDA}, table_->device_kind));
    }
    const std::pair<const char*, bool> members[] = {
        {"description", table_->description != nullptr}, {"supports", table_->supports != nullptr},
        {"prepare", table_->prepare != nullptr},         {"run", table_->run != nullptr},
        {"destroy", table_->destroy != nullptr},         {"kernel", table_->kernel != nullptr}};
    for (const auto& [name, there] : members) {
      if (!there) fail(fmt::format("{} of flashbench_plugin_table is null", name));
    }
  }

  std::string path_;
  SharedLibrary file_;
  const flashbench_plugin* table_ = nullptr;
};

// ---- the tool's types, converted to the interface's

int32_t code(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return FLASHBENCH_FORWARD;
    case Pass::backward:
      return FLASHBENCH_BACKWARD;
  }
  throw std::logic_error("no such pass");
}

int32_t code(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return FLASHBENCH_FP32;
    case Dtype::fp16:
      return FLASHBENCH_FP16;
    case Dtype::bf16:
      return FLASHBENCH_BF16;
    case Dtype::e4m3:
      break;  // no plugin is asked for it
  }
  throw std::logic_error("no such dtype");
}

int32_t code(Mask mask) {
  switch (mask) {
    case Mask::none:
      return FLASHBENCH_MASK_NONE;
    case Mask::causal_top_left:
      return FLASHBENCH_MASK_CAUSAL_TOP_LEFT;
    case Mask::causal_bottom_right:
      return FLASHBENCH_MASK_CAUSAL_BOTTOM_RIGHT;
  }
  throw std::logic_error("no such mask");
}

int32_t code(Layout layout) {
  switch (layout) {
    case Layout::bshd:
      return FLASHBENCH_LAYOUT_BSHD;
    case Layout::bhsd:
      return FLASHBENCH_LAYOUT_BHSD;
    case Layout::ragged:
      return FLASHBENCH_LAYOUT_RAGGED;
  }
  throw std::logic_error("no such layout");
}

int32_t code(Placement placement) {
  switch (placement) {
    case Placement::contiguous:
      return FLASHBENCH_PLACEMENT_CONTIGUOUS;
    case Placement::strided:
      return FLASHBENCH_PLACEMENT_STRIDED;
    case Placement::offset:
      return FLASHBENCH_PLACEMENT_OFFSET;
  }
  throw std::logic_error("no such placement");
}

// Rows without keys are the first or the last ones, if there are any.
bool has_rows_without_keys(const Problem& p) {
  for (int64_t b = 0; b < (p.lengths ? p.batch : 1); ++b) {
    const Problem request = p.request(b);
    if (request.q_len == 0) continue;
    if (request.visible_keys(0).empty() || request.visible_keys(request.q_len - 1).empty()) {
      return true;
    }
  }
  return false;
}

flashbench_problem as_plugin_sees(const Problem& p, Placement placement) {
  return {.size = sizeof(flashbench_problem),
          .pass = code(p.pass),
          .dtype = code(p.dtype),
          .mask = code(p.mask),
          .layout = code(p.layout),
          .placement = code(placement),
          .batch = p.batch,
          .q_heads = p.q_heads,
          .kv_heads = p.kv_heads,
          .q_len = p.q_len,
          .kv_len = p.kv_len,
          .head_dim = p.head_dim,
          .scale = p.softmax_scale(),
          .window_left = p.window_left.value_or(kNoLimit),
          .window_right = p.window_right.value_or(kNoLimit),
          .head_dim_v = p.value_dim(),
          .lengths = p.lengths ? 1 : 0,
          .q_tokens = p.q_tokens(),
          .kv_tokens = p.kv_tokens(),
          .rows_without_keys = has_rows_without_keys(p) ? 1 : 0,
          .page_size = p.page_size.value_or(0),
          .pool_pages = p.is_paged() ? p.pool_pages() : 0,
          .table_width = p.is_paged() ? p.table_width() : 0};
}

uint64_t features(const flashbench_plugin& table) {
  return table.size >= kFirstTableBytes + sizeof(table.features) ? table.features : 0;
}

flashbench_device as_plugin_sees(const DeviceInfo& info) {
  return {.size = sizeof(flashbench_device),
          .kind = info.kind == DeviceKind::cpu ? FLASHBENCH_CPU : FLASHBENCH_CUDA,
          .index = info.index,
          .compute_capability = info.compute_capability,
          .threads = info.threads};
}

flashbench_tensor as_plugin_sees(const ConstTensorView& t) {
  return {.data = const_cast<void*>(t.data),  // a hash checks that inputs are not changed
          .dtype = code(t.dtype),
          .sizes = {t.batch, t.heads, t.length, t.head_dim},
          .strides = {t.batch_stride, t.head_stride, t.row_stride, 1}};
}

flashbench_tensors as_plugin_sees(const Problem& p, const Inputs& in, const Outputs& out,
                                  const CuSeqlens& cu_seqlens) {
  const bool forward = p.pass == Pass::forward;
  const auto keys = [&](const ConstTensorView& t) {
    return as_plugin_sees(t.is_paged() ? pool_view(t, p) : t);
  };
  return {.size = sizeof(flashbench_tensors),
          .q = as_plugin_sees(in.q),
          .k = keys(in.k),
          .v = keys(in.v),
          .o = as_plugin_sees(forward ? ConstTensorView(out.o) : in.o),
          .logsumexp = forward ? out.logsumexp : const_cast<float*>(in.logsumexp),
          .d_o = as_plugin_sees(in.d_o),
          .dq = as_plugin_sees(out.dq),
          .dk = as_plugin_sees(out.dk),
          .dv = as_plugin_sees(out.dv),
          .cu_seqlens_q = cu_seqlens.queries(),
          .cu_seqlens_k = cu_seqlens.keys(),
          .block_table = in.k.pages.table,
          .block_table_stride = in.k.pages.stride};
}

// ---- provider and session

class PluginSession final : public Session {
 public:
  PluginSession(const flashbench_plugin& plugin, const Problem& p, Device& device,
                int64_t workspace_bytes)
      : plugin_(plugin),
        problem_(p),
        device_(device),
        workspace_(device.allocate(static_cast<size_t>(workspace_bytes), MemoryUse::workspace)),
        cu_seqlens_(device, p) {
    device_.synchronize();  // poisoning runs in the stream, which prepare does not know
    const flashbench_problem problem = as_plugin_sees(p, Placement::contiguous);
    const flashbench_device described = as_plugin_sees(device.info());
    Why why;
    require_taken(
        call_plugin(plugin_, "prepare", plugin_.prepare, &problem, &described, workspace_.data(),
                    workspace_bytes, &session_, why.data(), why.bytes()),
        why, "prepare");
    device_.synchronize();
  }
  ~PluginSession() override { call_plugin(plugin_, "destroy", plugin_.destroy, session_); }
  PluginSession(const PluginSession&) = delete;
  PluginSession& operator=(const PluginSession&) = delete;

  void run(const Inputs& in, const Outputs& out) override {
    const flashbench_tensors tensors = as_plugin_sees(problem_, in, out, cu_seqlens_);
    Why why;
    require_ok(call_plugin_timed(plugin_, "run", plugin_.run, session_, &tensors,
                                 device_.stream().cuda, why.data(), why.bytes()),
               why, "run");
    require_no_returned_child(plugin_);
  }

  std::string kernel() const override {
    return line(call_plugin(plugin_, "kernel", plugin_.kernel, session_));
  }

  std::optional<int64_t> requested_bytes() const override {
    if (plugin_.requested_bytes == nullptr) return std::nullopt;
    const int64_t bytes =
        call_plugin(plugin_, "requested_bytes", plugin_.requested_bytes, session_);
    return bytes < 0 ? std::nullopt : std::optional(bytes);
  }

 private:
  const flashbench_plugin& plugin_;
  Problem problem_;
  Device& device_;
  Buffer workspace_;
  CuSeqlens cu_seqlens_;
  flashbench_session* session_ = nullptr;
};

class PluginProvider final : public Provider {
 public:
  PluginProvider(std::string name, std::string path, std::string xxh3)
      : name_(std::move(name)), path_(std::move(path)), xxh3_(std::move(xxh3)) {}

  std::string_view name() const override { return name_; }
  std::string_view description() const override {
    if (description_.empty()) description_ = line(plugin().description);
    return description_;
  }
  DeviceKind device_kind() const override {
    return plugin().device_kind == FLASHBENCH_CPU ? DeviceKind::cpu : DeviceKind::cuda;
  }

  std::vector<std::string_view> optional_axes() const override {
    const uint64_t known = features(plugin());
    std::vector<std::string_view> axes;
    if (known & FLASHBENCH_FEATURE_WINDOW) axes.insert(axes.end(), {"window_left", "window_right"});
    if (known & FLASHBENCH_FEATURE_HEAD_DIM_V) axes.push_back("head_dim_v");
    if (known & FLASHBENCH_FEATURE_LENGTHS) axes.push_back("lengths");
    if (known & FLASHBENCH_FEATURE_PAGES)
      axes.insert(axes.end(), kPageAxes.begin(), kPageAxes.end());
    return axes;
  }

  std::optional<std::string> why_unsupported(const Problem& p,
                                             const DeviceInfo& info) const override {
    return why_unsupported_placement(p, Placement::contiguous, info);
  }
  std::optional<std::string> why_unsupported_placement(const Problem& p, Placement placement,
                                                       const DeviceInfo& info) const override {
    if (info.kind != device_kind()) {
      return fmt::format("it needs a {} device", flashbench::name(device_kind()));
    }
    if (const auto why = CuSeqlens::why_none(p)) return why;
    const flashbench_problem problem = as_plugin_sees(p, placement);
    const flashbench_device device = as_plugin_sees(info);
    Why why;
    const flashbench_status status = call_plugin(plugin(), "supports", plugin().supports, &problem,
                                                 &device, why.data(), why.bytes());
    if (status == FLASHBENCH_UNSUPPORTED) return why.text("the plugin gives no reason");
    require_ok(status, why, "supports");
    return std::nullopt;
  }

  int64_t workspace_bytes(const Problem& p, const DeviceInfo& info) const override {
    if (plugin().workspace_bytes == nullptr) return 0;
    const flashbench_problem problem = as_plugin_sees(p, Placement::contiguous);
    const flashbench_device device = as_plugin_sees(info);
    int64_t bytes = 0;
    Why why;
    require_taken(call_plugin(plugin(), "workspace_bytes", plugin().workspace_bytes, &problem,
                              &device, &bytes, why.data(), why.bytes()),
                  why, "workspace_bytes");
    if (bytes < 0) {
      throw std::runtime_error(
          fmt::format("expected a workspace of 0 bytes or more, found {}", bytes));
    }
    return bytes;
  }

  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    return std::make_unique<PluginSession>(plugin(), p, device, workspace_bytes(p, device.info()));
  }

 private:
  const flashbench_plugin& plugin() const {
    if (library_ == nullptr) library_ = std::make_unique<PluginLibrary>(path_, xxh3_);
    return library_->table();
  }

  std::string name_, path_, xxh3_;
  mutable std::unique_ptr<const PluginLibrary> library_;
  mutable std::string description_;
};

}  // namespace

std::unique_ptr<Provider> make_plugin_provider(std::string name, std::string path,
                                               std::string xxh3) {
  return std::make_unique<PluginProvider>(std::move(name), std::move(path), std::move(xxh3));
}

void load_plugin(const std::string& path, const std::string& xxh3) {
  PluginLibrary(path, xxh3);
}

}  // namespace flashbench
