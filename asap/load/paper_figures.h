// What the paper says, as numbers: the text of its evaluation (its section 5), not read off
// figures.
#pragma once

namespace asap::paper {

inline constexpr double kSloMs = 5000;  // on mean TTFT

// Highest request rate under the limit, requests per second.
inline constexpr double kSloRateAsap = 20;
inline constexpr double kSloRateDefault = 6.8;
inline constexpr double kSloRateChunked = 10.5;

// Mean TTFT at 1 request per second, ms.
inline constexpr double kTtftAsap = 350;
inline constexpr double kTtftDefault = 533;
inline constexpr double kTtftChunked = 388;

// Mean TTFT of ASAP over that of the other.
inline constexpr double kAt4OfDefault = 0.451;
inline constexpr double kAt4OfChunked = 0.582;
inline constexpr double kAt8OfChunked = 0.317;

// Highest rate without one mechanism, and what it does at low load.
inline constexpr double kNoInterleaving = 17.5;
inline constexpr double kNoOverlap = 17.8;
inline constexpr double kNoSuperKernel = 18.9;
inline constexpr double kInterleavingCost = 0.065;  // of TTFT
inline constexpr double kSuperKernelSavesMs = 13.4;

// Parts of the TTFT of prompts below 512 tokens, Default at 4 requests per second.
inline constexpr double kShortBarrierShare = 0.55;
inline constexpr double kShortQueueShare = 0.30;
// How much of Default's time outside kernels ASAP saves, at most.
inline constexpr double kOutsideKernelsCut = 0.80;

// Synchronous point-to-point over asynchronous dispatch, by tokens; and dispatch of 512 tokens.
inline constexpr double kSyncOverAsync1k = 4.0;
inline constexpr double kSyncOverAsync8k = 5.8;
inline constexpr double kDispatch512Ms = 0.1;

}  // namespace asap::paper
