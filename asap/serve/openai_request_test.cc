// Request bodies as values: what is accepted, and that every refusal names the field at fault.
#include "asap/serve/openai_request.h"

#include <gtest/gtest.h>

#include "asap/serve/stop_matcher.h"
#include "asap/serve/test_support.h"

namespace asap {
namespace {

const RequestLimits kLimits{"m", 100, 257};

CompletionRequest parsed(const std::string& body) {
  auto request = parse_completion(body, kLimits);
  EXPECT_TRUE(request) << body << ": " << (request ? "" : request.error().message);
  return request ? *std::move(request) : CompletionRequest{};
}

struct Refusal {
  std::string body;
  std::string param;    // what the error's `param` must be
  std::string message;  // a part of its message
  int status = 400;
};

// Every body is complete but for the field of interest.
std::string with(const std::string& field) {
  return R"({"prompt":"hi",)" + field + "}";
}

const std::string kDeep(100'000, '[');

const Refusal kRefusals[] = {
    // Not JSON, or not an object.
    {"", "", "empty"},
    {"{", "", "at byte 2"},
    {"nonsense", "", "at byte 2"},
    {R"({"prompt":"hi"}})", "", "at byte 16"},
    {R"({"prompt":"hi",})", "", "at byte 16"},
    {R"({"prompt":'hi'})", "", "at byte 11"},
    {R"({"prompt":"hi)", "", "at byte 14"},
    {R"({"prompt":"h\qi"})", "", "at byte 14"},
    {"{\"prompt\":\"a\xff\"}", "", "at byte 13"},
    {"{\"prompt\":\"a\xc0\xaf\"}", "", "at byte 13"},
    {"{\"prompt\":\"a\xed\xa0\x80\"}", "", "at byte 14"},
    {R"({"prompt":"\ud800"})", "", "at byte"},
    {"{\"prompt\":\"a\nb\"}", "", "at byte 13"},
    {"{\"prompt\":\"a\"\0}", "", "at byte"},
    {with(R"("temperature":NaN)"), "", "at byte"},
    {with(R"("temperature":Infinity)"), "", "at byte"},
    {with(R"("temperature":1e999)"), "", "invalid JSON"},
    {with(R"("max_tokens":01)"), "", "at byte"},
    {"[]", "", "array"},
    {"null", "", "null"},
    {"17", "", "number 17"},
    {R"("prompt")", "", "string"},
    {kDeep, "", "at byte 64"},
    {R"({"prompt":)" + kDeep + "}", "", "deeper than 64"},
    {R"({"x":)" + std::string(70, '[') + std::string(70, ']') + "}", "", "deeper than 64"},
    // model
    {with(R"("model":"other")"), "model", "other", 404},
    {with(R"("model":"")"), "model", "does not exist", 404},
    {with(R"("model":5)"), "model", "number 5"},
    {with(R"("model":["m"])"), "model", "array"},
    // prompt
    {"{}", "prompt", "missing"},
    {R"({"prompt":null})", "prompt", "missing"},
    {R"({"prompt":""})", "prompt", "empty"},
    {R"({"prompt":[]})", "prompt", "empty"},
    {R"({"prompt":[""]})", "prompt", "prompt[0] is empty"},
    {R"({"prompt":[[]]})", "prompt", "prompt[0] is empty"},
    {R"({"prompt":["a",""]})", "prompt", "prompt[1] is empty"},
    {R"({"prompt":5})", "prompt", "number 5"},
    {R"({"prompt":true})", "prompt", "boolean true"},
    {R"({"prompt":{"text":"a"}})", "prompt", "object"},
    {R"({"prompt":[null]})", "prompt", "prompt[0] is null"},
    {R"({"prompt":[1,"a"]})", "prompt", "prompt[1] is string"},
    {R"({"prompt":["a",1]})", "prompt", "prompt[1] is number 1"},
    {R"({"prompt":[[[1]]]})", "prompt", "prompt[0][0] is array"},
    {R"({"prompt":[1,2.5]})", "prompt", "prompt[1] is number 2.5"},
    {R"({"prompt":[1,-1]})", "prompt", "prompt[1] is number -1"},
    {R"({"prompt":[257]})", "prompt", "from 0 to 256"},
    {R"({"prompt":[[1],[2,257]]})", "prompt", "prompt[1][1] is number 257"},
    {R"({"prompt":[4294967297]})", "prompt", "prompt[0] is number 4294967297"},
    {R"({"prompt":[9223372036854775808]})", "prompt", "token id"},
    {R"({"prompt":[1e3]})", "prompt", "token id"},
    {R"({"prompt":[true]})", "prompt", "boolean"},
    // lengths
    {with(R"("max_tokens":0)"), "max_tokens", "from 1 to 100"},
    {with(R"("max_tokens":-1)"), "max_tokens", "number -1"},
    {with(R"("max_tokens":101)"), "max_tokens", "from 1 to 100"},
    {with(R"("max_tokens":9223372036854775808)"), "max_tokens", "9223372036854775808"},
    {with(R"("max_tokens":-9223372036854775809)"), "max_tokens", "from 1 to 100"},
    {with(R"("max_tokens":1e300)"), "max_tokens", "from 1 to 100"},
    {with(R"("max_tokens":1.5)"), "max_tokens", "number 1.5"},
    {with(R"("max_tokens":"16")"), "max_tokens", "string \"16\""},
    {with(R"("max_tokens":true)"), "max_tokens", "boolean true"},
    {with(R"("max_tokens":[16])"), "max_tokens", "array"},
    {with(R"("max_completion_tokens":0)"), "max_completion_tokens", "from 1 to 100"},
    {with(R"("min_tokens":-1)"), "min_tokens", "from 0 to 16"},
    {with(R"("min_tokens":17)"), "min_tokens", "from 0 to 16"},
    {with(R"("ignore_eos":1)"), "ignore_eos", "true or false"},
    // sampling
    {with(R"("temperature":-0.1)"), "temperature", "at least 0"},
    {with(R"("temperature":"hot")"), "temperature", "string \"hot\""},
    {with(R"("temperature":[])"), "temperature", "array"},
    {with(R"("temperature":false)"), "temperature", "boolean"},
    {with(R"("seed":9223372036854775808)"), "seed", "9223372036854775808"},
    {with(R"("seed":-9223372036854775809)"), "seed", "an integer"},
    {with(R"("seed":1.5)"), "seed", "number 1.5"},
    {with(R"("seed":"1")"), "seed", "string"},
    {with(R"("logprobs":21)"), "logprobs", "from 0 to 20"},
    {with(R"("logprobs":-1)"), "logprobs", "from 0 to 20"},
    {with(R"("logprobs":true)"), "logprobs", "boolean true"},
    // what is served with one value only
    {with(R"("n":257)"), "n", "from 1 to 256"},
    {with(R"("n":0)"), "n", "number 0"},
    {with(R"("n":"1")"), "n", "string"},
    {with(R"("best_of":2)"), "best_of", "expected n (1)"},
    {with(R"("n":2,"best_of":3)"), "best_of", "expected n (2)"},
    {R"({"n":200,"prompt":["a","b"]})", "n", "at most 256"},
    {with(R"("top_p":0)"), "top_p", "above 0 and up to 1"},
    {with(R"("top_p":1.01)"), "top_p", "number 1.01"},
    {with(R"("top_p":"1")"), "top_p", "string"},
    {with(R"("top_k":-2)"), "top_k", "from -1"},
    {with(R"("top_k":2147483648)"), "top_k", "2147483648"},
    {with(R"("top_k":0.5)"), "top_k", "number 0.5"},
    {with(R"("min_p":1.5)"), "min_p", "from 0 to 1"},
    {with(R"("presence_penalty":2.1)"), "presence_penalty", "from -2 to 2"},
    {with(R"("frequency_penalty":-2.1)"), "frequency_penalty", "from -2 to 2"},
    {with(R"("repetition_penalty":0)"), "repetition_penalty", "number 0"},
    {with(R"("logit_bias":[1])"), "logit_bias", "array"},
    {with(R"("logit_bias":{"a":1})"), "logit_bias", "key string \"a\""},
    {with(R"("logit_bias":{"1x":1})"), "logit_bias", "1x"},
    {with(R"("logit_bias":{"257":1})"), "logit_bias", "from 0 to 256"},
    {with(R"("logit_bias":{"-1":1})"), "logit_bias", "-1"},
    {with(R"("logit_bias":{"5":101})"), "logit_bias.5", "from -100 to 100"},
    {with(R"("logit_bias":{"5":"x"})"), "logit_bias.5", "string"},
    {with(R"("logit_bias":{"5":null})"), "logit_bias.5", "null"},
    {with(R"("stop_token_ids":5)"), "stop_token_ids", "number 5"},
    {with(R"("stop_token_ids":[257])"), "stop_token_ids", "from 0 to 256"},
    {with(R"("stop_token_ids":["a"])"), "stop_token_ids", "string"},
    {with(R"("priority":1.5)"), "priority", "an integer"},
    {with(R"("priority":1001)"), "priority", "from -1000 to 1000"},
    {with(R"("request_id":5)"), "request_id", "a string"},
    {with(R"("skip_special_tokens":0)"), "skip_special_tokens", "true or false"},
    {with(R"("include_stop_str_in_output":2)"), "include_stop_str_in_output", "true or false"},
    {with(R"("echo":true)"), "echo", "only false"},
    {with(R"("echo":"no")"), "echo", "true or false"},
    {with(R"("suffix":"end")"), "suffix", "not supported"},
    {with(R"("response_format":{"type":"json_object"})"), "response_format", "not enforced"},
    {with(R"("response_format":"text")"), "response_format", "not enforced"},
    {with(R"("guided_json":{"type":"object"})"), "guided_json", "not enforced"},
    {with(R"("guided_regex":"a+")"), "guided_regex", "not enforced"},
    {with(R"("guided_choice":["a"])"), "guided_choice", "not enforced"},
    {with(R"("guided_grammar":"g")"), "guided_grammar", "not enforced"},
    {with(R"("structured_outputs":{"regex":"a"})"), "structured_outputs", "not enforced"},
    {with(R"("structural_tag":"t")"), "structural_tag", "not enforced"},
    // stop, stream and the rest
    {with(R"("stop":5)"), "stop", "number 5"},
    {with(R"("stop":"")"), "stop", "1 to 256 bytes"},
    {with(R"("stop":["a",5])"), "stop", "number 5"},
    {with(R"("stop":["a",""])"), "stop", "1 to 256 bytes"},
    {with(R"("stop":")" + std::string(257, 'x') + "\""), "stop", "1 to 256 bytes"},
    {with(R"("stream":"true")"), "stream", "true or false"},
    {with(R"("stream":1)"), "stream", "number 1"},
    {with(R"("stream_options":true)"), "stream_options", "an object"},
    {with(R"("stream_options":{"include_usage":1})"), "stream_options.include_usage", "number 1"},
    {with(R"("return_token_ids":"yes")"), "return_token_ids", "true or false"},
    {with(R"("return_timing":1)"), "return_timing", "true or false"},
    {with(R"("add_special_tokens":0)"), "add_special_tokens", "true or false"},
};

TEST(ParseCompletion, RefusesAndNamesTheField) {
  static_assert(std::size(kRefusals) >= 60);
  for (const Refusal& expected : kRefusals) {
    const std::string shown = expected.body.substr(0, 100);
    const auto request = parse_completion(expected.body, kLimits);
    ASSERT_FALSE(request) << shown;
    const ApiError& error = request.error();
    EXPECT_EQ(error.status, expected.status) << shown;
    EXPECT_EQ(error.param, expected.param) << shown << ": " << error.message;
    EXPECT_NE(error.message.find(expected.message), std::string::npos)
        << shown << ": " << error.message;
    EXPECT_LT(error.message.size(), 400u) << shown;
  }
}

TEST(ParseCompletion, LimitsTheNumberOfPromptsAndStops) {
  std::string prompts, stops;
  for (size_t i = 0; i <= kMaxChoices; ++i) prompts += (i ? ",\"a\"" : "\"a\"");
  for (int i = 0; i <= kMaxStops; ++i) stops += (i ? ",\"a\"" : "\"a\"");
  EXPECT_EQ(parse_completion(R"({"prompt":[)" + prompts + "]}", kLimits).error().param, "prompt");
  EXPECT_EQ(parse_completion(with(R"("stop":[)" + stops + "]"), kLimits).error().param, "stop");
}

TEST(ParseCompletion, Defaults) {
  const auto request = parsed(R"({"prompt":"hi"})");
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::string>(request.prompts[0]), "hi");
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 1.0);
  EXPECT_EQ(request.sampling.logprobs, -1);
  EXPECT_FALSE(request.has_seed || request.stream || request.include_usage);
  EXPECT_FALSE(request.return_token_ids || request.return_timing || request.sampling.ignore_eos);
  EXPECT_TRUE(request.add_special_tokens);
}

TEST(ParseCompletion, PromptForms) {
  const std::vector<int32_t> ids{1, 2, 256};
  EXPECT_EQ(std::get<std::string>(parsed(R"({"prompt":["one"]})").prompts[0]), "one");
  EXPECT_EQ(std::get<1>(parsed(R"({"prompt":[1,2,256]})").prompts[0]), ids);
  EXPECT_EQ(std::get<1>(parsed(R"({"prompt":[[1,2,256]]})").prompts[0]), ids);
  EXPECT_EQ(parsed(R"({"prompt":["a","b","c"]})").prompts.size(), 3u);
  EXPECT_EQ(parsed(R"({"prompt":[[1],[2]]})").prompts.size(), 2u);
  EXPECT_EQ(std::get<0>(parsed("{\"prompt\":\"\\u0000\\ud83d\\ude00\"}").prompts[0]),
            std::string("\0\xF0\x9F\x98\x80", 5));
}

TEST(ParseCompletion, AcceptsWhatClientsSend) {
  const auto request = parsed(with(
      R"("model":"m","n":1,"best_of":1,"echo":false,"suffix":null,"logprobs":null,"seed":-1,
         "response_format":{"type":"text"},"guided_json":null,"structured_outputs":null,
         "max_tokens":4.0,"min_tokens":4,"temperature":0,"top_p":0.9,"top_k":-1,"stop":["a","b"],
         "repetition_penalty":1.1,"stream":true,"lora_path":null,"unknown":{"deep":[[1]]},
         "stream_options":{"include_usage":true,"continuous_usage_stats":true})"));
  EXPECT_EQ(request.sampling.max_tokens, 4);
  EXPECT_EQ(request.sampling.min_tokens, 4);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 0);  // -1: all
  EXPECT_EQ(request.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(request.sampling.temperature, 0.0);
  EXPECT_EQ(request.sampling.seed, UINT64_MAX);
  EXPECT_TRUE(request.has_seed && request.stream && request.include_usage);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parsed(with(R"("max_completion_tokens":7)")).sampling.max_tokens, 7);
  EXPECT_EQ(parsed(with(R"("max_completion_tokens":7,"max_tokens":5)")).sampling.max_tokens, 7);
  EXPECT_EQ(parsed(with(R"("min_tokens":3,"ignore_eos":true)")).sampling.max_tokens, 16);
}

TEST(ParseCompletion, TakesEverySamplingParameter) {
  const auto request = parsed(with(
      R"("n":3,"best_of":3,"top_k":5,"min_p":0.1,"presence_penalty":-2,"frequency_penalty":2,
         "logit_bias":{"0":-100,"256":2.5},"stop_token_ids":[7,8],"min_tokens":2,"priority":-3,
         "skip_special_tokens":false,"include_stop_str_in_output":true,"request_id":"r")"));
  const SamplingParams& p = request.sampling;
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(p.top_k, 5);
  EXPECT_EQ(p.min_p, 0.1);
  EXPECT_EQ(p.presence_penalty, -2);
  EXPECT_EQ(p.frequency_penalty, 2);
  ASSERT_EQ(p.logit_bias.size(), 2u);
  EXPECT_EQ(p.logit_bias[0].first + p.logit_bias[1].first, 256);
  EXPECT_EQ(p.stop_token_ids, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(p.min_tokens, 2);
  EXPECT_EQ(request.priority, -3);
  EXPECT_FALSE(request.skip_special_tokens);
  EXPECT_TRUE(request.include_stop);
  EXPECT_EQ(request.request_id, "r");
}

TEST(TokenizePrompts, ChecksLengthsWithBothNumbers) {
  const auto refused = [](const std::string& body) {
    auto request = parsed(body);
    auto ids = tokenize_prompts(request, kLimits, test::byte_tokenizer());
    EXPECT_FALSE(ids);
    return ids ? ApiError{} : ids.error();
  };
  auto error = refused(R"({"max_tokens":1,"prompt":")" + std::string(100, 'x') + "\"}");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "prompt");
  EXPECT_NE(error.message.find("100 tokens"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("99"), std::string::npos) << error.message;

  error = refused(R"({"max_tokens":50,"prompt":")" + std::string(51, 'x') + "\"}");
  EXPECT_EQ(error.param, "max_tokens");
  for (const char* number : {"51", "50", "101", "100"}) {
    EXPECT_NE(error.message.find(number), std::string::npos) << error.message;
  }

  error = refused(R"({"max_completion_tokens":50,"max_tokens":1,"prompt":")" +
                  std::string(51, 'x') + "\"}");
  EXPECT_EQ(error.param, "max_completion_tokens");
  EXPECT_NE(error.message.find("max_completion_tokens 50"), std::string::npos) << error.message;

  // So large that no token but the longest, <eos>, could make it fit: it is not tokenized.
  error = refused(R"({"max_tokens":1,"prompt":")" + std::string(10'000'000, 'x') + "\"}");
  EXPECT_EQ(error.param, "prompt");
  EXPECT_EQ(error.message,
            "the prompt has at least 2000000 tokens: at most 99 leave room for one more "
            "(max_model_len 100)");
  error = refused(R"({"max_tokens":1,"prompt":")" + std::string(499, 'x') + "\"}");
  EXPECT_NE(error.message.find("has 499 tokens"), std::string::npos) << error.message;

  auto request = parsed(R"({"max_tokens":50,"prompt":[")" + std::string(50, 'x') + "\"]}");
  const auto ids = tokenize_prompts(request, kLimits, test::byte_tokenizer());
  ASSERT_TRUE(ids);
  EXPECT_EQ((*ids)[0], std::vector<int32_t>(50, 'x'));
}

TEST(StopMatcher, HoldsBackAndCuts) {
  StopMatcher stops({"END", "\n\n"});
  EXPECT_EQ(stops.push("one\n"), "one");  // "\n" could be the first of two
  EXPECT_EQ(stops.push("two EN"), "\ntwo ");
  EXPECT_TRUE(stops.holding());
  EXPECT_EQ(stops.push("D more\n\n"), "");
  EXPECT_EQ(stops.matched(), "END");
  EXPECT_EQ(stops.push("anything"), "");

  StopMatcher never({"xyz"});
  EXPECT_EQ(never.push("abxy"), "ab");
  EXPECT_EQ(never.flush(), "xy");
  EXPECT_EQ(never.matched(), "");

  StopMatcher none({});
  EXPECT_EQ(none.push("as it is"), "as it is");
}

}  // namespace
}  // namespace asap
