#include "plan/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "attention/error.h"

namespace flashbench {
namespace {

std::vector<Case> all_cases(const Suite& suite) {
  std::vector<Case> cases;
  for (const SuiteGroup& group : suite.groups) {
    cases.insert(cases.end(), group.cases.begin(), group.cases.end());
  }
  return cases;
}

TEST(Suite, EveryGroupHasAPurposeAndValidCases) {
  for (const std::string& name : suite_names()) {
    const Suite suite = make_suite(name);
    EXPECT_EQ(suite.name, name);
    EXPECT_FALSE(suite.description.empty());
    std::set<std::string_view> names;
    for (const SuiteGroup& group : suite.groups) {
      EXPECT_TRUE(names.insert(group.name).second) << group.name;
      EXPECT_FALSE(group.purpose.empty()) << group.name;
      EXPECT_EQ(group.purpose.find('\n'), std::string_view::npos);
      EXPECT_FALSE(group.cases.empty()) << group.name;
      for (const Case& item : group.cases) {
        EXPECT_FALSE(item.invalid()) << item.key() << ": " << *item.invalid();
      }
    }
  }
}

TEST(Suite, ConfigsHaveEveryCaseOnce) {
  for (const std::string& name : suite_names()) {
    const Suite suite = make_suite(name);
    const SweepConfig config = suite_config(suite);
    EXPECT_EQ(config.name, name);
    EXPECT_EQ(config.json.at("suite"), name);
    EXPECT_EQ(config.verify.fp64_flops, suite.verify.fp64_flops);
    std::set<std::string> in_suite, in_config;
    for (const Case& item : all_cases(suite)) in_suite.insert(item.key());
    for (const Case& item : config.cases) {
      EXPECT_TRUE(in_config.insert(item.key()).second) << item.key();
    }
    EXPECT_EQ(in_config, in_suite);
  }
}

TEST(Suite, AdversarialHasWhatItMust) {
  const std::vector<Case> cases = all_cases(make_suite("adversarial"));
  const auto any = [&](auto has) { return std::any_of(cases.begin(), cases.end(), has); };
  for (const Pass pass : kPasses) {
    for (const Dtype dtype : kUnscaledDtypes) {
      const auto has = [&](auto wanted) {
        return any([&](const Case& c) {
          return c.problem.pass == pass && c.problem.dtype == dtype && wanted(c, c.problem);
        });
      };
      for (const Distribution distribution : kDistributions) {
        if (distribution == Distribution::files || distribution == Distribution::uniform ||
            distribution == Distribution::outliers || distribution == Distribution::mean_v ||
            distribution == Distribution::channel_offsets ||
            distribution == Distribution::subnormals) {
          continue;
        }
        EXPECT_TRUE(has([&](const Case& c, const Problem&) {
          return c.inputs.distribution == distribution;
        })) << name(pass)
            << name(dtype) << name(distribution);
      }
      for (const Placement placement : kPlacements) {
        EXPECT_TRUE(has([&](const Case& c, const Problem&) { return c.placement == placement; }));
      }
      EXPECT_TRUE(has([](const Case&, const Problem& p) { return p.visible_keys(0).empty(); }));
      EXPECT_TRUE(has([](const Case&, const Problem& p) { return p.q_len == 1; }));
      EXPECT_TRUE(has([](const Case&, const Problem& p) { return p.value_dim() < p.head_dim; }));
      EXPECT_TRUE(has([](const Case&, const Problem& p) { return p.value_dim() > p.head_dim; }));
      EXPECT_TRUE(has([](const Case& c, const Problem& p) {
        return c.inputs.distribution == Distribution::low_logsumexp && p.kv_len % 128 == 64;
      }));
    }
    for (const Mask mask : {Mask::causal_top_left, Mask::causal_bottom_right}) {
      for (const bool longer : {false, true}) {
        EXPECT_TRUE(any([&](const Case& c) {
          const Problem& p = c.problem;
          return p.pass == pass && p.mask == mask && p.q_len != p.kv_len &&
                 (p.q_len > p.kv_len) == longer;
        }));
      }
    }
    for (const int64_t tile : {64, 128, 256}) {
      for (const int64_t length : {tile - 1, tile, tile + 1}) {
        EXPECT_TRUE(any([&](const Case& c) {
          return c.problem.pass == pass && c.problem.q_len == length && c.problem.kv_len == length;
        }));
      }
    }
    EXPECT_TRUE(
        any([&](const Case& c) { return c.problem.pass == pass && c.problem.batch > 65535; }));
    EXPECT_TRUE(
        any([&](const Case& c) { return c.problem.pass == pass && c.problem.kv_heads > 65535; }));
  }
}

TEST(Suite, AdversarialHasBytes) {
  const std::vector<Case> cases = all_cases(make_suite("adversarial"));
  const auto has = [&](auto wanted) {
    return std::any_of(cases.begin(), cases.end(), [&](const Case& c) {
      return c.problem.is_scaled() && wanted(c, c.problem);
    });
  };
  for (const Descale descale : kDescales) {
    for (const Distribution distribution : kDistributions) {
      const bool of_pages_or_random =  // nothing of their own without pages, or drawn at random
          distribution == Distribution::nan_v_padding || distribution == Distribution::uniform ||
          distribution == Distribution::channel_offsets;
      if (of_pages_or_random || distribution == Distribution::files) continue;
      EXPECT_EQ(has([&](const Case& c, const Problem& p) {
                  return p.descale == descale && c.inputs.distribution == distribution;
                }),
                distribution != Distribution::inf_key)
          << name(descale) << name(distribution);
    }
    for (const Placement placement : kPlacements) {
      EXPECT_TRUE(has([&](const Case& c, const Problem& p) {
        return p.descale == descale && c.placement == placement;
      }));
    }
    for (const Mask mask : kMasks) {
      EXPECT_TRUE(has([&](const Case&, const Problem& p) {
        return p.descale == descale && p.mask == mask && p.q_len > p.kv_len;
      })) << name(mask);
    }
  }
  EXPECT_TRUE(has([](const Case&, const Problem& p) { return p.has_window(); }));
  EXPECT_TRUE(has([](const Case&, const Problem& p) { return p.value_dim() != p.head_dim; }));
}

TEST(Suite, AdversarialHasCachesOfBytes) {
  const std::vector<Case> cases = all_cases(make_suite("adversarial"));
  const auto has = [&](auto wanted) {
    return std::any_of(cases.begin(), cases.end(),
                       [&](const Case& c) { return c.problem.kv_dtype && wanted(c, c.problem); });
  };
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const bool paged : {false, true}) {
      for (const Descale descale : {Descale::per_head, Descale::per_tensor}) {
        EXPECT_TRUE(has([&](const Case& c, const Problem& p) {
          return p.dtype == dtype && p.is_paged() == paged && p.descale == descale &&
                 c.inputs.distribution == Distribution::outliers;
        })) << name(dtype)
            << paged << name(descale);
      }
      EXPECT_TRUE(has([&](const Case& c, const Problem& p) {
        return p.dtype == dtype && p.is_paged() == paged && p.lengths &&
               c.inputs.distribution == Distribution::outliers;
      })) << name(dtype)
          << paged;
      for (const Distribution distribution :
           {Distribution::one_hot, Distribution::subnormals, Distribution::nan_key,
            Distribution::nan_v_padding, Distribution::huge_scores}) {
        EXPECT_TRUE(has([&](const Case& c, const Problem& p) {
          return p.dtype == dtype && p.is_paged() == paged && c.inputs.distribution == distribution;
        })) << name(dtype)
            << paged << name(distribution);
      }
    }
  }
}

TEST(Suite, AdversarialHasWindows) {
  const std::vector<Case> cases = all_cases(make_suite("adversarial"));
  for (const Pass pass : kPasses) {
    const auto has = [&](auto wanted) {
      return std::any_of(cases.begin(), cases.end(), [&](const Case& c) {
        return c.problem.pass == pass && c.problem.has_window() && wanted(c, c.problem);
      });
    };
    for (const int64_t keys : {0, 1, 63, 64, 65, 1000}) {
      EXPECT_TRUE(has([&](const Case&, const Problem& p) {
        return p.window_left == keys && !p.window_right;
      })) << keys;
      EXPECT_TRUE(has([&](const Case&, const Problem& p) {
        return p.window_right == keys && !p.window_left;
      })) << keys;
    }
    for (const Dtype dtype : kUnscaledDtypes) {
      EXPECT_TRUE(has([&](const Case&, const Problem& p) { return p.dtype == dtype; }));
    }
    for (const Mask mask : kMasks) {
      const auto with_mask = [&](auto wanted) {
        return has([&](const Case& c, const Problem& p) { return p.mask == mask && wanted(c, p); });
      };
      EXPECT_TRUE(with_mask([](const Case&, const Problem& p) { return p.q_len > p.kv_len; }));
      EXPECT_TRUE(with_mask([](const Case&, const Problem& p) { return p.q_len < p.kv_len; }));
      EXPECT_TRUE(with_mask([](const Case&, const Problem& p) {
        return p.visible_keys(0).empty() || p.visible_keys(p.q_len - 1).empty();
      }));
      EXPECT_TRUE(with_mask([](const Case& c, const Problem& p) {
        return c.inputs.distribution == Distribution::nan_unseen && p.seen_keys().size() < p.kv_len;
      }));
    }
    EXPECT_TRUE(has([](const Case& c, const Problem& p) {  // NaN before every window
      return c.inputs.distribution == Distribution::nan_unseen && p.seen_keys().first > 0;
    }));
    EXPECT_TRUE(has([](const Case&, const Problem& p) { return p.q_len == 1; }));
  }
}

TEST(Suite, AdversarialHasRequestsOfDifferentLengths) {
  const std::vector<Case> cases = all_cases(make_suite("adversarial"));
  for (const Pass pass : kPasses) {
    for (const Layout layout : kLayouts) {
      const auto has = [&](auto wanted) {
        return std::any_of(cases.begin(), cases.end(), [&](const Case& c) {
          const Problem& p = c.problem;
          return p.pass == pass && p.layout == layout && p.lengths && wanted(p);
        });
      };
      for (const bool keys : {false, true}) {
        const auto length = [=](const Problem& p, int64_t b) {
          return keys ? p.kv_len_of(b) : p.q_len_of(b);
        };
        EXPECT_TRUE(has([&](const Problem& p) { return length(p, 0) == 0; }));
        EXPECT_TRUE(has([&](const Problem& p) { return length(p, p.batch - 1) == 0; }));
        EXPECT_TRUE(has([&](const Problem& p) {
          return p.batch == 3 && length(p, 0) > 0 && length(p, 1) == 0 && length(p, 2) > 0;
        }));
      }
      EXPECT_TRUE(has([](const Problem& p) { return p.kv_len == 0; }));
      for (const Mask mask : kMasks) {
        EXPECT_TRUE(has([&](const Problem& p) {
          return p.mask == mask && p.q_len_of(0) > p.kv_len_of(0) && p.q_len_of(1) < p.kv_len_of(1);
        }));
      }
      for (const Dtype dtype : kUnscaledDtypes) {
        EXPECT_TRUE(has([&](const Problem& p) { return p.dtype == dtype; }));
      }
      EXPECT_TRUE(has([](const Problem& p) { return p.window_left.has_value(); }));
      EXPECT_TRUE(has([](const Problem& p) { return p.head_dim_v.has_value(); }));
      if (layout == Layout::bhsd) continue;
      for (const int64_t requests : {991, 993, 1025}) {
        EXPECT_TRUE(has([&](const Problem& p) { return p.batch == requests; })) << requests;
      }
    }
  }
}

TEST(Suite, AdversarialDecodesWithoutPagesAsWithThem) {
  const std::vector<Case> cases = all_cases(make_suite("adversarial"));
  const auto has = [&](auto wanted) {
    return std::any_of(cases.begin(), cases.end(), [&](const Case& c) {
      return c.problem.lengths && !c.problem.is_paged() && wanted(c.problem);
    });
  };
  for (const int64_t group : {1, 3, 5, 7, 16, 17, 71}) {
    EXPECT_TRUE(has([&](const Problem& p) { return p.heads_per_kv_head() == group; })) << group;
  }
  for (int64_t keys = 1; keys <= 1100; ++keys) {
    EXPECT_TRUE(has([&](const Problem& p) {
      return p.batch == 550 && p.mask == Mask::none && p.kv_len_of((keys - 1) / 2) == keys;
    })) << keys;
  }
  EXPECT_TRUE(has([](const Problem& p) { return p.batch == 4096; }));
}

// What outlives a session shows in the next one only if that has the same shapes: each dtype in
// turn with and without pages, long requests, short ones, then long ones again.
TEST(Suite, AdversarialRepeatsShapesWithOtherLengthsStridesAndScales) {
  const Suite suite = make_suite("adversarial");
  const auto group =
      std::find_if(suite.groups.begin(), suite.groups.end(),
                   [](const SuiteGroup& g) { return g.name == "one after another"; });
  ASSERT_NE(group, suite.groups.end());
  for (const bool paged : {false, true}) {
    for (const Dtype dtype : kUnscaledDtypes) {
      std::vector<Case> turns;
      for (const Case& item : group->cases) {
        if (item.problem.dtype == dtype && item.problem.is_paged() == paged) turns.push_back(item);
      }
      ASSERT_EQ(turns.size(), 7u);
      for (const Case& item : turns) {
        EXPECT_EQ(item.problem.batch, turns[0].problem.batch);
        EXPECT_EQ(item.problem.kv_len, turns[0].problem.kv_len);
      }
      EXPECT_FALSE(turns[1].problem.lengths == turns[0].problem.lengths);
      EXPECT_TRUE(turns[2].problem.lengths == turns[0].problem.lengths);
      EXPECT_EQ(turns[3].placement, Placement::strided);
      EXPECT_NE(turns[4].problem.scale, turns[5].problem.scale);
      EXPECT_EQ(turns[6].problem, turns[0].problem);
      EXPECT_NE(turns[6].key(), turns[0].key());
    }
  }
}

TEST(Suite, AdversarialHasPagesOfEverySizeOrderAndPlace) {
  const std::vector<Case> cases = all_cases(make_suite("adversarial"));
  const auto has = [&](auto wanted) {
    return std::any_of(cases.begin(), cases.end(),
                       [&](const Case& c) { return c.problem.is_paged() && wanted(c); });
  };
  for (const Case& item : cases) EXPECT_EQ(item.invalid(), std::nullopt) << item.key();
  for (const int64_t page_size : {1, 8, 16, 48, 64, 128, 256}) {
    for (const KvLayout layout : kKvLayouts) {
      for (const Layout of_q : {Layout::ragged, Layout::bshd}) {
        EXPECT_TRUE(has([&](const Case& c) {
          return c.problem.page_size == page_size && c.problem.kv_layout == layout &&
                 c.problem.layout == of_q;
        })) << page_size;
      }
    }
  }
  for (const PageOrder order : kPageOrders) {
    for (const Dtype dtype : kUnscaledDtypes) {
      EXPECT_TRUE(has([&](const Case& c) {
        return c.problem.page_order == order && c.problem.dtype == dtype;
      }));
    }
  }
  for (const Placement placement : kPlacements) {
    for (const KvLayout layout : kKvLayouts) {
      EXPECT_TRUE(has([&](const Case& c) {
        return c.placement == placement && c.problem.kv_layout == layout;
      }));
    }
  }
  EXPECT_TRUE(has([](const Case& c) { return c.problem.block_table && c.problem.shares_pages(); }));
  EXPECT_TRUE(has([](const Case& c) { return c.problem.shared_prefix == 1000; }));
  for (const int64_t group : {1, 3, 5, 7, 16, 71}) {
    EXPECT_TRUE(has([&](const Case& c) { return c.problem.heads_per_kv_head() == group; }));
  }
}

TEST(Suite, AdversarialStaysSmall) {
  double flops = 0, of_bytes = 0;  // the latter are run where a provider takes them
  for (const Case& item : all_cases(make_suite("adversarial"))) {
    (item.problem.is_scaled() ? of_bytes : flops) += item.problem.flops();
    EXPECT_LT(item.problem.compulsory_bytes(), int64_t{64} << 20) << item.key();
  }
  EXPECT_LT(flops, 4.5e10);
  EXPECT_LT(of_bytes, 2e10);
}

TEST(Suite, LargeIsPastTheRangeOf32Bits) {
  for (const Case& item : all_cases(make_suite("large"))) {
    EXPECT_GT(std::max(item.problem.query_elements(), item.problem.key_elements()),
              int64_t{1} << 31);
  }
}

// Checks that every value of each axis is drawn in more than a few cases.
TEST(Suite, RandomDrawsFromAllAxes) {
  const std::vector<Case> cases = all_cases(make_suite("random"));
  ASSERT_EQ(cases.size(), 1000u);
  const auto share = [&](auto has) {
    return static_cast<double>(std::count_if(cases.begin(), cases.end(), has)) / 500;
  };
  for (const Pass pass : kPasses) {
    for (const Dtype dtype : kUnscaledDtypes) {
      for (const Mask mask : kMasks) {
        EXPECT_GT(share([&](const Case& c) {
                    const Problem& p = c.problem;
                    return p.pass == pass && p.dtype == dtype && p.mask == mask;
                  }),
                  0.02);
      }
    }
  }
  const auto expect_some = [&](auto has) { EXPECT_GT(share(has), 0.05); };
  for (const Layout layout : kLayouts) {
    expect_some([&](const Case& c) { return c.problem.layout == layout; });
  }
  for (const Placement placement : kPlacements) {
    expect_some([&](const Case& c) { return c.placement == placement; });
  }
  expect_some([](const Case& c) { return c.problem.q_len > 1500 && c.problem.kv_len < 500; });
  expect_some([](const Case& c) { return c.problem.q_len < 500 && c.problem.kv_len > 1500; });
  expect_some([](const Case& c) { return c.problem.q_len == 1; });
  expect_some([](const Case& c) { return c.problem.head_dim > 128; });
  expect_some([](const Case& c) { return c.problem.heads_per_kv_head() == 8; });
  expect_some([](const Case& c) { return c.problem.scale.value_or(0) < 0; });
  expect_some([](const Case& c) { return c.inputs.distribution == Distribution::outliers; });
  expect_some([](const Case& c) { return c.problem.window_left.has_value(); });
  expect_some([](const Case& c) { return c.problem.window_right.has_value(); });
}

TEST(Suite, RandomSaysItsSeedsAndOneOfThemTellsAProblem) {
  const Suite suite = make_suite("random", RandomSeeds{.seed = 40, .count = 30});
  const SweepConfig config = suite_config(suite);
  ASSERT_EQ(config.cases.size(), 60u);
  EXPECT_EQ(config.json.at("seed"), 40);
  EXPECT_EQ(config.json.at("count"), 30);
  for (uint64_t seed = 40; seed < 70; ++seed) {
    const Case& item = config.cases[seed - 40];
    EXPECT_EQ(item.inputs.seed, seed);
    const Suite alone = make_suite("random", RandomSeeds{.seed = seed, .count = 1});
    EXPECT_EQ(all_cases(alone)[0].key(), item.key());
    const Case& of_bytes = config.cases[seed - 10];
    EXPECT_EQ(of_bytes.inputs.seed, seed);
    EXPECT_EQ(all_cases(alone)[1].key(), of_bytes.key());
    EXPECT_LE(std::max(item.problem.q_len, item.problem.kv_len), 3000);
  }
  // Pinned: a reported seed must give the same problem in any build of this version.
  EXPECT_EQ(config.cases[0].key(),
            "forward/bf16/none/bshd/b1/hq16/hkv2/q1856/k482/d96/scale2.28/outliers/seed40");
  EXPECT_EQ(config.cases[30].key(),
            "forward/e4m3/causal_bottom_right/bhsd/b1/hq2/hkv1/q571/k230/d168/scale-2.69/outliers/"
            "seed40/per_block");
}

TEST(Suite, OnlyRandomTakesSeeds) {
  EXPECT_THROW(make_suite("large", RandomSeeds()), BadInput);
}

TEST(Suite, AnUnknownOneIsRefusedWithTheKnownOnes) {
  try {
    make_suite("adverserial");
    FAIL();
  } catch (const BadInput& error) {
    EXPECT_STREQ(error.what(),
                 "expected a suite (adversarial, large, random), got \"adverserial\"");
  }
}

}  // namespace
}  // namespace flashbench
