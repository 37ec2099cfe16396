#include "case/dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>

#include "attention/error.h"
#include "attention/lengths.h"
#include "files/npy.h"
#include "inputs/inputs.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

using Shape = std::vector<int64_t>;

class DumpTest : public testing::Test {
 protected:
  DumpTest() {
    problem_ = {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 3, .kv_len = 5, .head_dim = 16};
  }

  // Whatever a test has dumped is known to files_of_dump, which protects inputs.
  void TearDown() override {
    if (!fs::is_directory(folder())) return;
    std::set<std::string> known;
    for (const fs::path& file : files_of_dump(folder(), {"any"})) known.insert(file.filename());
    for (const std::string& name : files()) EXPECT_TRUE(known.contains(name)) << name;
  }

  fs::path folder() const { return temporary_ / "new" / "dump"; }

  void dump_inputs_of_problem() {
    const HostTensors tensors(problem_, {}, pool_);
    dump_inputs(folder(), problem_, tensors.inputs());
  }

  // Outputs whose bytes are 1, 2, 3, ...
  void dump_outputs_of_problem(bool logsumexp = true) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<unsigned char>(i + 1);
    Outputs outputs;
    if (problem_.pass == Pass::forward) {
      outputs.o = output_view<void>(bytes_.data(), problem_);
      if (logsumexp) outputs.logsumexp = reinterpret_cast<float*>(bytes_.data());
    } else {
      outputs.dq = query_view<void>(bytes_.data(), problem_);
      outputs.dk = key_view<void>(bytes_.data() + 4, problem_);
      outputs.dv = value_view<void>(bytes_.data() + 8, problem_);
    }
    dump_outputs(folder(), problem_, outputs);
  }

  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder())) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  NpyArray file(const std::string& name) const { return read_npy(folder() / name); }
  Shape shape(const std::string& name) const { return file(name).shape; }

  template <typename Value>
  std::vector<Value> values(const std::string& name) const {
    const NpyArray array = file(name);
    std::vector<Value> result(array.data.size() / sizeof(Value));
    std::memcpy(result.data(), array.data.data(), array.data.size());
    return result;
  }

  TemporaryFolder temporary_;
  ThreadPool pool_{1};
  Problem problem_;
  std::vector<unsigned char> bytes_ = std::vector<unsigned char>(1 << 16);
};

// ---- which files, and of which shape

TEST_F(DumpTest, WritesTheInputsInTheirLayout) {
  dump_inputs_of_problem();
  EXPECT_THAT(files(), UnorderedElementsAre("q.npy", "k.npy", "v.npy"));
  EXPECT_THAT(shape("q.npy"), ElementsAre(2, 3, 4, 16));
  EXPECT_THAT(shape("k.npy"), ElementsAre(2, 5, 2, 16));
  EXPECT_EQ(file("q.npy").type, NpyArray::Type::float32);

  problem_.layout = Layout::bhsd;
  problem_.dtype = Dtype::bf16;
  dump_inputs_of_problem();
  EXPECT_THAT(shape("q.npy"), ElementsAre(2, 4, 3, 16));
  EXPECT_THAT(shape("v.npy"), ElementsAre(2, 2, 5, 16));
  EXPECT_EQ(file("q.npy").type, NpyArray::Type::uint16);
}

TEST_F(DumpTest, WritesTheValuesThatAProviderReads) {
  const HostTensors tensors(problem_, {}, pool_);
  dump_inputs(folder(), problem_, tensors.inputs());
  const NpyArray v = file("v.npy");
  ASSERT_EQ(v.data.size(), size_t{2 * 5 * 2 * 16 * 4});
  EXPECT_EQ(std::memcmp(v.data.data(), tensors.inputs().v.data, v.data.size()), 0);
}

TEST_F(DumpTest, WritesDoOnlyBackward) {
  problem_.pass = Pass::backward;
  problem_.set_value_dim(8);
  dump_inputs_of_problem();
  EXPECT_THAT(files(), UnorderedElementsAre("q.npy", "k.npy", "v.npy", "do.npy"));
  EXPECT_THAT(shape("v.npy"), ElementsAre(2, 5, 2, 8));
  EXPECT_THAT(shape("do.npy"), ElementsAre(2, 3, 4, 8));
}

TEST_F(DumpTest, WritesWhereTheRowsOfPackedRequestsStart) {
  problem_.layout = Layout::ragged;
  problem_.set_lengths(
      std::make_shared<Lengths>(std::vector<RequestLengths>{{1, 4}, {0, 2}, {3, 5}}));
  dump_inputs_of_problem();
  EXPECT_THAT(files(), UnorderedElementsAre("q.npy", "k.npy", "v.npy", "cu_seqlens_q.npy",
                                            "cu_seqlens_k.npy"));
  EXPECT_THAT(shape("q.npy"), ElementsAre(4, 4, 16));
  EXPECT_THAT(shape("k.npy"), ElementsAre(11, 2, 16));
  EXPECT_THAT(values<int32_t>("cu_seqlens_q.npy"), ElementsAre(0, 1, 1, 4));
  EXPECT_THAT(values<int32_t>("cu_seqlens_k.npy"), ElementsAre(0, 4, 6, 11));

  dump_outputs_of_problem();
  EXPECT_THAT(shape("o.npy"), ElementsAre(4, 4, 16));
  EXPECT_THAT(shape("logsumexp.npy"), ElementsAre(4, 4));
}

TEST_F(DumpTest, WritesThePoolAndTheTableOfPagedKeys) {
  problem_.page_size = 4;
  const HostTensors tensors(problem_, {}, pool_);
  dump_inputs(folder(), problem_, tensors.inputs());
  EXPECT_THAT(files(), UnorderedElementsAre("q.npy", "k.npy", "v.npy", "block_table.npy"));
  EXPECT_THAT(shape("k.npy"), ElementsAre(problem_.pool_pages(), 4, 2, 16));
  EXPECT_THAT(shape("block_table.npy"), ElementsAre(2, problem_.table_width()));
  const int32_t* table = tensors.inputs().k.pages.table;
  EXPECT_THAT(values<int32_t>("block_table.npy"),
              ElementsAreArray(table, static_cast<size_t>(2 * problem_.table_width())));

  problem_.kv_layout = KvLayout::paged_hnd;
  dump_inputs_of_problem();
  EXPECT_THAT(shape("v.npy"), ElementsAre(problem_.pool_pages(), 2, 4, 16));
}

TEST_F(DumpTest, WritesTheFactorsOfBytes) {
  problem_.dtype = Dtype::e4m3;
  dump_inputs_of_problem();
  EXPECT_THAT(files(), UnorderedElementsAre("q.npy", "k.npy", "v.npy", "q_descale.npy",
                                            "k_descale.npy", "v_descale.npy"));
  EXPECT_EQ(file("q.npy").type, NpyArray::Type::uint8);
  EXPECT_THAT(shape("q_descale.npy"), ElementsAre(problem_.query_descales()));
  EXPECT_THAT(shape("k_descale.npy"), ElementsAre(problem_.key_descales()));
  EXPECT_NE(problem_.query_descales(), problem_.key_descales());
}

TEST_F(DumpTest, WritesTheFactorOfAnOutputThatHasOne) {
  problem_.dtype = Dtype::e4m3;
  const float factor = 0.25f;
  Outputs outputs;
  outputs.o = output_view<void>(bytes_.data(), problem_, Dtype::e4m3);
  dump_outputs(folder(), problem_, outputs);
  EXPECT_THAT(files(), UnorderedElementsAre("o.npy"));
  outputs.o.descales.data = &factor;
  dump_outputs(folder(), problem_, outputs);
  EXPECT_THAT(files(), UnorderedElementsAre("o.npy", "o_descale.npy"));
  EXPECT_THAT(values<float>("o_descale.npy"), ElementsAre(0.25f));
}

TEST_F(DumpTest, WritesTheOutputsOfAPass) {
  dump_outputs_of_problem();
  EXPECT_THAT(files(), UnorderedElementsAre("o.npy", "logsumexp.npy"));
  EXPECT_THAT(shape("o.npy"), ElementsAre(2, 3, 4, 16));
  EXPECT_THAT(shape("logsumexp.npy"), ElementsAre(2, 4, 3));
  EXPECT_EQ(std::memcmp(file("o.npy").data.data(), bytes_.data(), 2 * 3 * 4 * 16 * 4), 0);

  fs::remove_all(folder());
  dump_outputs_of_problem(false);  // a provider may give none
  EXPECT_THAT(files(), UnorderedElementsAre("o.npy"));

  fs::remove_all(folder());
  problem_.pass = Pass::backward;
  dump_outputs_of_problem();
  EXPECT_THAT(files(), UnorderedElementsAre("dq.npy", "dk.npy", "dv.npy"));
  EXPECT_THAT(shape("dq.npy"), ElementsAre(2, 3, 4, 16));
  EXPECT_THAT(shape("dk.npy"), ElementsAre(2, 5, 2, 16));
  EXPECT_EQ(values<uint8_t>("dq.npy")[0], 1);
  EXPECT_EQ(values<uint8_t>("dk.npy")[0], 5);
  EXPECT_EQ(values<uint8_t>("dv.npy")[0], 9);
}

// ---- what goes wrong

TEST_F(DumpTest, AFileInPlaceOfTheFolderIsNamed) {
  std::ofstream(temporary_ / "new") << "a file";
  for (const auto& dump : {std::function([this] { dump_inputs_of_problem(); }),
                           std::function([this] { dump_outputs_of_problem(); })}) {
    EXPECT_THAT(dump, ThrowsMessage<FileError>(
                          HasSubstr(folder().string() + ": cannot create this folder")));
  }
}

TEST_F(DumpTest, AFileThatCannotBeWrittenIsNamed) {
  fs::create_directories(folder() / "k.npy");
  EXPECT_THAT(
      [this] { dump_inputs_of_problem(); },
      ThrowsMessage<FileError>((folder() / "k.npy").string() + ": cannot write: Is a directory"));
}

TEST_F(DumpTest, AFullDiskIsNamed) {
  fs::create_directories(folder());
  fs::create_symlink("/dev/full", folder() / "logsumexp.npy");
  EXPECT_THAT([this] { dump_outputs_of_problem(); },
              ThrowsMessage<FileError>((folder() / "logsumexp.npy").string() +
                                       ": cannot write: No space left on device"));
}

// A file of no more than so many bytes, as on a disk with so much room.
class LimitedFiles {
 public:
  explicit LimitedFiles(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limited{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~LimitedFiles() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  LimitedFiles(const LimitedFiles&) = delete;
  LimitedFiles& operator=(const LimitedFiles&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

// q.npy has 1536 bytes of values.
TEST_F(DumpTest, AHalfWrittenTensorIsNoFileAndLeavesTheOldOne) {
  fs::create_directories(folder());
  std::ofstream(folder() / "q.npy") << "old";
  {
    const LimitedFiles limited(1000);
    EXPECT_THAT(
        [this] { dump_inputs_of_problem(); },
        ThrowsMessage<FileError>((folder() / "q.npy").string() + ": cannot write: File too large"));
  }
  EXPECT_THAT(files(), UnorderedElementsAre("q.npy"));
  EXPECT_EQ(fs::file_size(folder() / "q.npy"), 3u);

  dump_inputs_of_problem();  // with room again
  EXPECT_THAT(files(), UnorderedElementsAre("q.npy", "k.npy", "v.npy"));
  EXPECT_THAT(shape("q.npy"), ElementsAre(2, 3, 4, 16));
}

}  // namespace
}  // namespace flashbench
