// Checks after a provider's outputs were judged right: guard bands, stale outputs, and determinism.
#include "case/audits.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "case/case_run.h"
#include "tests/case/fake_provider.h"

namespace flashbench {
namespace {

class Audits : public testing::Test {
 protected:
  Audits() {
    options_.measure.warmup_runs = 1;
    options_.measure.warmup_seconds = 0;
    options_.measure.min_samples = 3;
    options_.measure.max_samples = 3;
    options_.time = false;
    item_.problem = {.q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40, .head_dim = 16};
  }

  Record run(FakeProvider::Tamper tamper) {
    const FakeProvider provider(std::move(tamper));
    return run_case(item_, {&provider}, *device_, gemm_.get(), options_).at(0);
  }

  // The contiguous parts of every output.
  std::vector<std::pair<void*, size_t>> memory(const Outputs& out) const {
    const Problem& p = item_.problem;
    const auto queries = static_cast<size_t>(p.query_elements()) * sizeof(float);
    const auto keys = static_cast<size_t>(p.key_elements()) * sizeof(float);
    if (p.pass == Pass::backward) {
      return {{out.dq.data, queries}, {out.dk.data, keys}, {out.dv.data, keys}};
    }
    return {{out.o.data, queries},
            {out.logsumexp, static_cast<size_t>(p.query_rows()) * sizeof(float)}};
  }

  static float* o(const Outputs& outputs) { return static_cast<float*>(outputs.o.data); }

  std::unique_ptr<Device> device_ = make_host_device(2);
  std::unique_ptr<GemmCeiling> gemm_ = make_gemm_ceiling(*device_, Dtype::fp32);
  CaseRunOptions options_;
  Case item_;
};

// The host, which does something after it has copied from `watched`.
class LateDevice : public Device {
 public:
  const DeviceInfo& info() const override { return host_->info(); }
  Stream stream() override { return host_->stream(); }
  void synchronize() override {}
  void copy_to_device(void* to, const void* from, size_t bytes) override {
    host_->copy_to_device(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    host_->copy_to_host(to, from, bytes);
    if (from == watched) std::exchange(late, [] {})();
  }
  void poison(void* data, size_t bytes) override { host_->poison(data, bytes); }
  double time(const std::function<void()>& launch) override { return host_->time(launch); }
  void evict_caches() override { host_->evict_caches(); }
  int64_t eviction_bytes() const override { return host_->eviction_bytes(); }

  const void* watched = nullptr;
  std::function<void()> late = [] {};

 protected:
  void* raw_allocate(size_t bytes) override {
    return std::aligned_alloc(64, (bytes / 64 + 1) * 64);
  }
  void raw_free(void* data) override { std::free(data); }

 private:
  std::unique_ptr<Device> host_ = make_host_device(2);
};

TEST_F(Audits, ALogsumexpWrittenWhileOIsCopiedFails) {
  gemm_.reset();
  device_ = std::make_unique<LateDevice>();
  auto& device = static_cast<LateDevice&>(*device_);
  const auto rows = static_cast<size_t>(item_.problem.query_rows());
  const Record record = run([&](const Inputs&, const Outputs& out, int) {
    const std::vector<float> right(out.logsumexp, out.logsumexp + rows);
    std::fill_n(out.logsumexp, rows, 0.0F);
    device.watched = out.o.data;
    device.late = [right, to = out.logsumexp] { std::copy(right.begin(), right.end(), to); };
  });
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_EQ(record.reason, "its outputs changed after it had returned");
}

TEST_F(Audits, AWriteBesideAnOutputFailsAndNamesIt) {
  for (const Placement placement : kPlacements) {
    item_.placement = placement;
    const Record record = run([](const Inputs&, const Outputs& out, int) { o(out)[-1] = 1; });
    EXPECT_EQ(record.status, Status::failed);
    EXPECT_EQ(record.reason, "4 bytes outside the elements of o were written") << name(placement);
  }
}

TEST_F(Audits, AWriteIntoAGapFailsInATimedRunToo) {
  item_.placement = Placement::strided;
  options_.time = true;
  const Record record = run([](const Inputs&, const Outputs& out, int n) {
    if (n > 2) o(out)[out.o.offset(0, 1, 32) + out.o.head_dim] = 1;
  });
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_EQ(record.reason, "4 bytes outside the elements of o were written");
  EXPECT_FALSE(record.measurement);
}

// Every output is NaN here. As far as its bits tell, such a NaN may be poison.
TEST_F(Audits, NansWithTheBitsOfPoisonAreWritten) {
  item_.inputs.distribution = Distribution::nan_key;
  options_.time = true;
  const Record record = run([&](const Inputs&, const Outputs& out, int) {
    for (const auto& [data, size] : memory(out)) std::memset(data, kPoisonByte, size);
  });
  EXPECT_EQ(record.status, Status::ok) << record.reason;
}

TEST_F(Audits, UnwrittenOutputsFailWhereTheyWouldBeNan) {
  item_.inputs.distribution = Distribution::nan_key;
  FakeProvider lazy([](const Inputs&, const Outputs&, int) {});
  lazy.part_runs = [](RunPart, const Inputs&, const Outputs&) { return true; };
  const Record record = run_case(item_, {&lazy}, *device_, gemm_.get(), options_).at(0);
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_EQ(record.reason, "it left 1122 output elements unwritten");
}

// Returns its first outputs, whatever the inputs are.
TEST_F(Audits, StaleOutputsFailTimedOrNot) {
  for (const bool time : {false, true}) {
    for (const Pass pass : kPasses) {
      options_.time = time;
      item_.problem.pass = pass;
      std::vector<std::vector<std::byte>> first;
      const Record record = run([&](const Inputs&, const Outputs& out, int n) {
        size_t i = 0;
        for (const auto& [data, size] : memory(out)) {
          const auto* bytes = static_cast<const std::byte*>(data);
          if (n == 0) {
            first.emplace_back(bytes, bytes + size);
          } else {
            std::memcpy(data, first[i++].data(), size);
          }
        }
      });
      EXPECT_EQ(record.status, Status::failed);
      EXPECT_NE(record.reason.find("its outputs do not follow its inputs"), std::string::npos)
          << record.reason;
      EXPECT_FALSE(record.measurement);
    }
  }
}

// Kept results that are right for a negated V.
TEST_F(Audits, OutputsOfKeptInputsFail) {
  for (const bool keeps_outputs : {false, true}) {
    const Provider& real = FakeProvider::real(DeviceKind::cpu);
    const std::unique_ptr<Session> session = real.prepare(item_.problem, *device_);
    FakeProvider provider([](const Inputs&, const Outputs&, int) {});
    std::vector<float> q, k;
    std::map<float, std::vector<std::vector<std::byte>>> outputs;  // by the first element of V
    provider.part_runs = [&](RunPart, const Inputs& in, const Outputs& out) {
      Inputs own = in;
      const auto keep = [](std::vector<float>& kept, ConstTensorView& t) {
        const auto* data = static_cast<const float*>(t.data);
        if (kept.empty()) kept.assign(data, data + t.elements());
        t.data = kept.data();
      };
      if (!keeps_outputs) {
        keep(q, own.q);
        keep(k, own.k);
      }
      auto& known = outputs[static_cast<const float*>(in.v.data)[0]];
      if (known.empty() || !keeps_outputs) {
        session->run(own, out);
        known.clear();
        for (const auto& [data, size] : memory(out)) {
          const auto* bytes = static_cast<const std::byte*>(data);
          known.emplace_back(bytes, bytes + size);
        }
      } else {
        size_t i = 0;
        for (const auto& [data, size] : memory(out)) std::memcpy(data, known[i++].data(), size);
      }
      return true;
    };
    const Record record = run_case(item_, {&provider}, *device_, gemm_.get(), options_).at(0);
    EXPECT_EQ(record.status, Status::failed);
    EXPECT_NE(record.reason.find("with the signs of half of the rows of Q and K flipped"),
              std::string::npos)
        << record.reason;
  }
}

// Of a provider in parts, the attention alone runs on what the last rounding, or the last whole
// run, has left: here copies of Q, K and V. The rounding leaves some of them as they were.
TEST_F(Audits, ARoundingThatLeavesInputsOutFails) {
  const std::vector<std::set<int>> sets{{}, {0}, {1}, {2}, {0, 1}, {0, 1, 2}};
  for (const std::set<int>& left_out : sets) {
    const Provider& real = FakeProvider::real(DeviceKind::cpu);
    const std::unique_ptr<Session> session = real.prepare(item_.problem, *device_);
    FakeProvider provider([](const Inputs&, const Outputs&, int) {});
    std::array<std::vector<float>, 3> kept;
    const auto keep = [&](Inputs in, const std::set<int>& but) {
      int i = 0;
      for (const ConstTensorView* t : {&in.q, &in.k, &in.v}) {
        const auto* data = static_cast<const float*>(t->data);
        if (!but.contains(i)) kept[i].assign(data, data + t->elements());
        ++i;
      }
    };
    provider.parts = {RunPart::rounding, RunPart::attention};
    provider.part_runs = [&](RunPart part, const Inputs& in, const Outputs& out) {
      if (part != RunPart::attention) keep(in, part == RunPart::whole ? std::set<int>{} : left_out);
      if (part == RunPart::rounding) return true;
      Inputs own = in;
      own.q.data = kept[0].data();
      own.k.data = kept[1].data();
      own.v.data = kept[2].data();
      session->run(own, out);
      return true;
    };
    const Record record = run_case(item_, {&provider}, *device_, gemm_.get(), options_).at(0);
    EXPECT_EQ(record.status, left_out.empty() ? Status::ok : Status::failed) << record.reason;
    EXPECT_EQ(
        record.reason.find("its parts do not compute what whole runs do") == std::string::npos,
        left_out.empty())
        << record.reason;
  }
}

TEST_F(Audits, AStaleLogsumexpAloneFails) {
  std::vector<float> first;
  const Record record = run([&](const Inputs&, const Outputs& out, int n) {
    const auto rows = static_cast<size_t>(item_.problem.query_rows());
    if (n == 0) first.assign(out.logsumexp, out.logsumexp + rows);
    std::copy(first.begin(), first.end(), out.logsumexp);
  });
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_NE(record.reason.find("flipped, logsumexp is off"), std::string::npos) << record.reason;
}

TEST_F(Audits, OutputsThatDifferByRoundingAreJudgedNotRefused) {
  const Record record = run([](const Inputs&, const Outputs& out, int n) {
    if (n > 0) o(out)[7] = std::nextafter(o(out)[7], 10.0f);
  });
  EXPECT_EQ(record.status, Status::ok) << record.reason;
}

TEST_F(Audits, InputsAreRestoredForTheNextProvider) {
  for (const Pass pass : kPasses) {
    item_.problem.pass = pass;
    std::map<int, std::vector<std::byte>> seen;
    const auto watch = [&](const Inputs& in, const Outputs&, int n) {
      const ConstTensorView& t = pass == Pass::forward ? in.v : in.d_o;
      const auto* data = static_cast<const std::byte*>(t.data);
      seen[n].assign(data, data + t.elements() * 4);
    };
    run(watch);
    const auto first = seen;
    run(watch);
    EXPECT_EQ(seen, first);
    // The verified run, one on negated inputs, and one on another Q and K or on rotated heads.
    ASSERT_EQ(seen.size(), 3u);
    EXPECT_NE(seen[0], seen[1]);
    flip_signs(seen[1], 4);
    EXPECT_EQ(seen[0], seen[1]);
    EXPECT_EQ(seen[0] == seen[2], pass == Pass::forward);
  }
}

TEST_F(Audits, InputsAreRestoredAfterARunThatThrows) {
  for (const Pass pass : kPasses) {
    item_.problem.pass = pass;
    for (const int run : {1, 2}) {
      const FakeProvider broken([&](const Inputs&, const Outputs&, int n) {
        if (n == run) throw std::runtime_error("broken");
      });
      const FakeProvider right([](const Inputs&, const Outputs&, int) {}, "right");
      const std::vector<Record> records =
          run_case(item_, {&broken, &right}, *device_, gemm_.get(), options_);
      EXPECT_EQ(records.at(0).reason, "broken");
      EXPECT_EQ(records.at(1).status, Status::ok) << records.at(1).reason;
    }
  }
}

// A backward pass on the probabilities of its first run.
TEST_F(Audits, KeptProbabilitiesFail) {
  item_.problem.pass = Pass::backward;
  for (const int64_t kv_heads : {1, 2}) {
    item_.problem.kv_heads = kv_heads;
    const Provider& real = FakeProvider::real(DeviceKind::cpu);
    const std::unique_ptr<Session> session = real.prepare(item_.problem, *device_);
    FakeProvider provider([](const Inputs&, const Outputs&, int) {});
    std::vector<float> q, k, logsumexp;
    provider.part_runs = [&](RunPart, const Inputs& in, const Outputs& out) {
      const auto kept = [](std::vector<float>& values, const void* data, int64_t count) {
        const auto* floats = static_cast<const float*>(data);
        if (values.empty()) values.assign(floats, floats + count);
        return values.data();
      };
      Inputs own = in;
      own.q.data = kept(q, in.q.data, in.q.elements());
      own.k.data = kept(k, in.k.data, in.k.elements());
      own.logsumexp = kept(logsumexp, in.logsumexp, item_.problem.query_rows());
      session->run(own, out);
      return true;
    };
    const Record record = run_case(item_, {&provider}, *device_, gemm_.get(), options_).at(0);
    EXPECT_EQ(record.status, Status::failed);
    EXPECT_NE(record.reason.find("with heads rotated"), std::string::npos) << record.reason;
  }
}

TEST_F(Audits, InputsChangedInTheLastRunFail) {
  const Record record = run([](const Inputs& in, const Outputs&, int n) {
    if (n == 1) static_cast<float*>(const_cast<void*>(in.k.data))[3] = 100;
  });
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_EQ(record.reason, "it changed its inputs");
}

TEST_F(Audits, AThreadLeftSpinningFails) {
  std::atomic<bool> end = false;
  std::thread spinning;
  const Record record = run([&](const Inputs&, const Outputs&, int n) {
    if (n != 0) return;
    spinning = std::thread([&] {
      while (!end) {
      }
    });
  });
  end = true;
  spinning.join();
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_EQ(record.reason.find("1 thread continued to work after it had returned"), 0u)
      << record.reason;
}

TEST_F(Audits, AChildProcessLeftAtWorkFails) {
  pid_t child = -1;
  const Record record = run([&](const Inputs&, const Outputs&, int n) {
    if (n != 0) return;
    child = fork();
    volatile bool forever = child == 0;
    while (forever) {
    }
  });
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(record.status, Status::failed);
  // After a fork OpenBLAS restarts its thread, which may work for a while too.
  EXPECT_NE(record.reason.find("1 child process continued to work"), std::string::npos)
      << record.reason;
}

TEST_F(Audits, ThreadsThatRestOrSoonDoAreNoneOfTheirs) {
  std::atomic<bool> end = false;
  std::thread resting, soon;
  const Record record = run([&](const Inputs&, const Outputs&, int n) {
    if (n != 0) return;
    resting = std::thread([&] { end.wait(false); });
    soon = std::thread([&] {  // like pool threads that poll for more work
      timespec used{};
      while (used.tv_nsec < 5'000'000) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      end.wait(false);
    });
  });
  end = true;
  end.notify_all();
  resting.join();
  soon.join();
  EXPECT_EQ(record.status, Status::ok) << record.reason;
}

TEST_F(Audits, WhatAnotherProviderLeftIsNotHeldAgainstTheNext) {
  std::atomic<bool> end = false;
  std::thread spinning([&] {
    while (!end) {
    }
  });
  const Record record = run([](const Inputs&, const Outputs&, int) {});
  end = true;
  spinning.join();
  EXPECT_EQ(record.status, Status::ok) << record.reason;
}

TEST_F(Audits, RepeatedRunsOfARealProviderAgreeBitByBit) {
  options_.repeat = 5;
  for (const Pass pass : kPasses) {
    item_.problem.pass = pass;
    int runs = 0;
    const Record record = run([&](const Inputs&, const Outputs&, int) { ++runs; });
    EXPECT_EQ(record.status, Status::ok) << record.reason;
    ASSERT_TRUE(record.determinism);
    EXPECT_EQ(record.determinism->kind, Determinism::Kind::bitwise);
    EXPECT_EQ(record.determinism->runs, 5);
    EXPECT_EQ(runs, 5 + 2);  // and on other inputs
  }
}

TEST_F(Audits, WithoutRepeatsNothingIsSaidOfThem) {
  EXPECT_FALSE(run([](const Inputs&, const Outputs&, int) {}).determinism);
}

TEST_F(Audits, RoundingThatDiffersIsBounded) {
  options_.repeat = 5;
  const Record record = run([](const Inputs&, const Outputs& out, int n) {
    if (n == 3) o(out)[7] += 2e-7f;
  });
  EXPECT_EQ(record.status, Status::ok) << record.reason;
  ASSERT_TRUE(record.determinism);
  EXPECT_EQ(record.determinism->kind, Determinism::Kind::bounded);
  EXPECT_EQ(record.determinism->runs, 5);
  EXPECT_GT(record.determinism->max_lambda, 0);
  EXPECT_LE(record.determinism->max_lambda, 6);
}

TEST_F(Audits, ARepeatThatIsWrongVariesAndFails) {
  options_.repeat = 5;
  const Record record = run([](const Inputs&, const Outputs& out, int n) {
    if (n == 2) o(out)[7] += 0.01f;
  });
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_EQ(record.verdict.status, Verdict::Status::failed);
  ASSERT_TRUE(record.determinism);
  EXPECT_EQ(record.determinism->kind, Determinism::Kind::varies);
  EXPECT_EQ(record.determinism->runs, 3);
  EXPECT_EQ(record.reason.find("the outputs of run 3 differ from the first run: o is off by"), 0u)
      << record.reason;
}

TEST_F(Audits, ARepeatThatWritesNothingVaries) {
  options_.repeat = 3;
  const Record record = run([&](const Inputs&, const Outputs& out, int n) {
    if (n != 2) return;
    for (const auto& [data, size] : memory(out)) std::memset(data, kPoisonByte, size);
  });
  EXPECT_EQ(record.determinism->kind, Determinism::Kind::varies);
  EXPECT_EQ(record.status, Status::failed);
}

TEST_F(Audits, WhatIsKnownOfTheInputsDecidesWhereTheReferencePasses) {
  item_.inputs.distribution = Distribution::one_hot;
  const Record record = run([](const Inputs&, const Outputs& out, int) {
    o(out)[5] = std::nextafter(o(out)[5], 1000.0f);  // lambda allows no more than half an ulp
  });
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_NE(record.reason.find("bit for bit"), std::string::npos) << record.reason;
  EXPECT_EQ(record.verdict.status, Verdict::Status::failed);
}

}  // namespace
}  // namespace flashbench
