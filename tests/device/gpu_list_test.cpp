#include "device/gpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "attention/error.h"

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(GpuList, NamesGpusInTheirOrder) {
  EXPECT_THAT(gpu_list("cuda"), ElementsAre(0));
  EXPECT_THAT(gpu_list("cuda:3"), ElementsAre(3));
  EXPECT_THAT(gpu_list("cuda:0,1,2,3"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(gpu_list("cuda:2,0,12"), ElementsAre(2, 0, 12));
  EXPECT_THAT(gpu_list("cuda:0,0"), ElementsAre(0, 0));
}

TEST(GpuList, RefusesWhatIsNoList) {
  for (const char* wrong : {"gpu", "cuda0", "cud:0", "cuda:x", "cuda:-1", "cuda:1.5", "cuda:0-3",
                            "cuda:0, 1", "cuda:0;1", "cuda:99999999999", "cuda:1000"}) {
    EXPECT_THAT([&] { gpu_list(wrong); },
                ThrowsMessage<BadInput>(HasSubstr(std::string("got \"") + wrong + '"')));
  }
  for (const char* sparse : {"cuda:", "cuda:,0", "cuda:0,", "cuda:0,,1"}) {
    EXPECT_THAT([&] { gpu_list(sparse); },
                ThrowsMessage<BadInput>(HasSubstr("a number is missing")))
        << sparse;
  }
  std::string many = "cuda:0";
  for (int i = 1; i < 65; ++i) many += ",0";
  EXPECT_THAT([&] { gpu_list(many); }, ThrowsMessage<BadInput>(HasSubstr("at most 64")));
}

TEST(GpuList, TellsRanksFromGpus) {
  EXPECT_THAT(different({2, 0, 2, 1, 0}), ElementsAre(2, 0, 1));
  EXPECT_EQ(ranks_text({0, 1, 2, 3}), "4 on 4 GPUs");
  EXPECT_EQ(ranks_text({0, 0}), "2 on 1 GPU");
  EXPECT_EQ(ranks_text({0, 1, 0, 1}), "4 on 2 GPUs");
}

}  // namespace
}  // namespace flashbench
