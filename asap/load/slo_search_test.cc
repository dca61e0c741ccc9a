#include "asap/load/slo_search.h"

#include <gtest/gtest.h>

namespace asap {
namespace {

// Runs the search against a server that meets the limit up to `limit`; returns the tries.
int play(SloSearch& search, double limit) {
  int tries = 0;
  while (const auto rate = search.next()) {
    search.record(*rate <= limit);
    if (++tries > 100) break;
  }
  return tries;
}

TEST(SloSearch, FindsTheLimitFromBelowAndFromAbove) {
  for (const double limit : {0.3, 1.0, 7.7, 20.2, 300.0}) {
    for (const double start : {0.5, 4.0, 64.0}) {
      SloSearch search(start, 0.02);
      EXPECT_LE(play(search, limit), 20) << limit << " from " << start;
      EXPECT_LE(search.best(), limit);
      EXPECT_GE(search.best() * 1.02, limit * 0.999) << "from " << start;
    }
  }
}

TEST(SloSearch, GivesUpBelowTheLeastRate) {
  SloSearch search(1.0, 0.05, 0.1);
  EXPECT_EQ(play(search, 0.0), 4);
  EXPECT_EQ(search.best(), 0);
}

TEST(SloSearch, EndsAboveTheMostRate) {
  SloSearch search(1.0, 0.05, 0.1, 16);
  EXPECT_EQ(play(search, 1e9), 5);
  EXPECT_EQ(search.best(), 16);
}

}  // namespace
}  // namespace asap
