// HtmlReport: a report as one HTML file: text, tables and charts, with nothing to fetch. It reads
// on a phone, in light and dark, and on paper. All text is escaped here.
//
// A number in a report comes from somewhere; Origin says from where, and the page shows it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace asap {

enum class Origin : uint8_t { none, paper, simulated, measured };
// "paper", "simulated", "measured here"; "" for none.
const char* origin_name(Origin origin);

struct HtmlColumn {
  std::string name;
  Origin origin = Origin::none;  // of the column's cells
  bool number = true;            // right-aligned
};

struct HtmlCell {
  HtmlCell(std::string content = "", Origin from = Origin::none)  // NOLINT: a text is a cell
      : text(std::move(content)), origin(from) {}
  HtmlCell(const char* content) : text(content) {}  // NOLINT
  std::string text;
  Origin origin = Origin::none;  // none: the column's
};

struct HtmlTable {
  std::string caption;
  std::vector<HtmlColumn> columns;
  std::vector<std::vector<HtmlCell>> rows;  // a row's first cell is its name
  bool folded = false;                      // the page shows the caption until it is opened
};

// A paragraph.
struct HtmlText {
  std::string text;
};

// A chart of render_svg().
struct HtmlFigure {
  std::string svg;
  std::string caption;
  Origin origin = Origin::none;
};

struct HtmlSection {
  std::string id;  // of links to it; letters, digits and -
  std::string title;
  std::vector<std::variant<HtmlText, HtmlTable, HtmlFigure>> parts;
};

struct HtmlReport {
  std::string title;
  std::string summary;
  std::vector<std::pair<std::string, std::string>> facts;  // name and value, at the top
  std::vector<HtmlSection> sections;
};

std::string html_of(const HtmlReport& report);
// A table for a terminal.
std::string text_of(const HtmlTable& table);

}  // namespace asap
