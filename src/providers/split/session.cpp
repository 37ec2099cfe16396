#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "providers/split/algorithm.h"

namespace flashbench {

namespace {

class SplitSession final : public Session, public GroupSession {
 public:
  SplitSession(const SplitKind& kind, const SplitParts& parts, const Problem& problem,
               std::unique_ptr<DeviceGroup> group)
      : kind_(kind), parts_(parts), problem_(problem), group_(std::move(group)) {
    for (int rank = 0; rank < group_->ranks(); ++rank) {
      ranks_.push_back(std::make_unique<Rank>(*group_, rank, parts_, problem_));
    }
    algorithm_ = kind.make(ranks_);
    for (const auto& rank : ranks_) rank->allocate_workspace();
  }

  void run(const Inputs& in, const Outputs& out) override {
    for (const auto& rank : ranks_) {
      std::ranges::fill(rank->pulled_bytes(), 0);
      rank->pushed_bytes() = 0;
    }
    group_->run([&](int number) {
      Rank& rank = *ranks_[static_cast<size_t>(number)];
      try {
        algorithm_->run(rank, in, out);
      } catch (...) {
        rank.end();
        throw;
      }
      rank.end();
    });
  }

  std::string kernel() const override {
    const Problem p = ranks_.front()->block(problem_.q_len, problem_.kv_len, false);
    return fmt::format("{} on each of {} devices, {}{}", ranks_.front()->variant(p),
                       group_->ranks(), flashbench::name(problem_.split),
                       kind_.nccl ? fmt::format(", NCCL {}", nccl_library().version) : "");
  }
  std::optional<int64_t> requested_bytes() const override { return std::nullopt; }
  GroupSession* group() override { return this; }

  void show_on(StepBoard& board) override {
    for (const auto& rank : ranks_) rank->show_on(board);
  }
  void only(GroupPart part) override {
    algorithm_->prepare(part);
    for (const auto& rank : ranks_) rank->only(part);
  }
  int gpus_at_work() const override {
    if (group_->info(0).kind == DeviceKind::cpu) return 1;
    std::set<int> gpus;
    for (int rank = 0; rank < group_->ranks(); ++rank) gpus.insert(group_->info(rank).index);
    return static_cast<int>(gpus.size());
  }
  std::vector<double> rank_seconds() const override { return group_->rank_seconds(); }
  std::vector<int64_t> sent_bytes() const override {
    std::vector<int64_t> sent(ranks_.size());
    for (size_t to = 0; to < ranks_.size(); ++to) {
      sent[to] += ranks_[to]->pushed_bytes();
      for (size_t from = 0; from < ranks_.size(); ++from) {
        if (from != to) sent[from] += ranks_[to]->pulled_bytes()[from];
      }
    }
    return sent;
  }

 private:
  const SplitKind& kind_;
  SplitParts parts_;
  Problem problem_;
  std::unique_ptr<DeviceGroup> group_;
  Ranks ranks_;
  std::unique_ptr<SplitAlgorithm> algorithm_;
};

}  // namespace

std::unique_ptr<Session> make_split_session(const SplitKind& kind, const SplitParts& parts,
                                            const Problem& problem,
                                            std::unique_ptr<DeviceGroup> group) {
  return std::make_unique<SplitSession>(kind, parts, problem, std::move(group));
}

}  // namespace flashbench
