// Windows: the memory of all devices of an instance in one process, and a link over it as between
// processes. For measurements: they see the copies that the engine makes.
#pragma once

#include <memory>
#include <vector>

#include "asap/runtime/worker.h"

namespace asap {

class Windows {
 public:
  // Pages are taken from the system when first written.
  static Result<Windows> open(const Geometry& geometry, const Platform& platform);
  Windows() = default;
  Windows(Windows&& other) noexcept;
  Windows& operator=(Windows&& other) noexcept;
  ~Windows();

  Link& link() { return *link_; }
  // Puts another link over the one that is there.
  void wrap(const std::function<std::unique_ptr<Link>(std::unique_ptr<Link>)>& make) {
    link_ = make(std::move(link_));
  }

 private:
  std::vector<int> fds_;
  std::unique_ptr<Link> link_;
};

}  // namespace asap
