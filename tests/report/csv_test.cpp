#include "report/csv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "sample_result.h"

namespace flashbench {
namespace {

// Other programs parse this header: it changes only with the schema version.
constexpr std::string_view kHeader =
    "schema,provider,kernel,device,pass,dtype,mask,batch,q_heads,kv_heads,q_len,kv_len,head_dim,"
    "status,reason,verified,max_abs_err,err_ratio,lambda,median_ms,ci_low_ms,ci_high_ms,min_ms,"
    "samples,tflops,pct_of_ceiling,speedup_vs_naive,bytes_compulsory,bytes_requested,bytes_"
    "measured,"
    "intensity,peak_bytes,workspace_bytes,sm_mhz,power_w,throttled,layout,distribution,seed,scale,"
    "tflops_convention";

std::vector<std::string> lines(const std::string& csv) {
  std::vector<std::string> result;
  size_t begin = 0;
  for (size_t end; (end = csv.find("\r\n", begin)) != std::string::npos; begin = end + 2) {
    result.push_back(csv.substr(begin, end - begin));
  }
  EXPECT_EQ(begin, csv.size()) << "every line ends in CR LF";
  return result;
}

TEST(Csv, FieldsAreQuotedAsRfc4180Says) {
  EXPECT_EQ(csv_field("plain", true), "plain");
  EXPECT_EQ(csv_field("a,b", true), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"x\"", true), "\"say \"\"x\"\"\"");
  EXPECT_EQ(csv_field("two\nlines", true), "\"two\nlines\"");
  EXPECT_EQ(csv_field("", true), "");
}

TEST(Csv, TextThatASpreadsheetWouldRunIsNeutralisedFiguresAreNot) {
  EXPECT_EQ(csv_field("=1+1", true), "'=1+1");
  EXPECT_EQ(csv_field("@x", true), "'@x");
  EXPECT_EQ(csv_field("-inf", true), "'-inf");
  EXPECT_EQ(csv_field("-1.5", false), "-1.5");
}

TEST(Csv, HeaderAndRows) {
  const auto rows = lines(to_csv(sample_result()));
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0], kHeader);
  EXPECT_EQ(rows[2],
            "1,tiled,tiled_kernel 64x64,\"Some CPU, 3 GHz\",forward,fp32,none,2,4,4,128,128,64,ok,,"
            "passed,3e-07,1.1,0.4,1,0.9,1.1,0.9,6,0.0335544,16.7772,4,1052672,1048576,,32,4718592,"
            "524288,,,,bshd,normal,1,0.125,0.0335544");
}

TEST(Csv, RowsWithoutFiguresLeaveThemEmpty) {
  const auto rows = lines(to_csv(sample_result()));
  EXPECT_EQ(rows[5],
            "1,other,,\"Some CPU, 3 GHz\",forward,fp32,none,1,1,1,1,1,64,unsupported,it has no "
            "head_dim 64,not_checked,,,,,,,,,,,,1028,,,,,,,,,bshd,normal,1,0.125,");
}

}  // namespace
}  // namespace flashbench
