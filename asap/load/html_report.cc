#include "asap/load/html_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "asap/load/markup.h"

namespace asap {

namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1f2328; --muted: #656d76; --line: #d0d7de;
  --paper: #ffffff; --soft: #f6f8fa; --link: #0969da;
  --of-paper: #7d4e00; --of-simulated: #0a5a8a; --of-measured: #1a7f37; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --muted: #8d96a0; --line: #30363d; --paper: #0d1117; --soft: #161b22;
    --link: #4493f8; --of-paper: #e3b341; --of-simulated: #79c0ff; --of-measured: #56d364; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 54rem; padding: 1.5rem 1rem 4rem; color: var(--ink);
  background: var(--paper); line-height: 1.5;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
p { margin: .6rem 0; max-width: 46rem; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
nav { margin: 1rem 0; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; font-size: .95rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 1rem 0;
  font-size: .9rem; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { caption-side: top; text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
thead th { vertical-align: bottom; border-bottom: 2px solid var(--line); font-weight: 600; }
tbody th { font-weight: 400; }
tbody tr:hover { background: var(--soft); }
.n { text-align: right; white-space: nowrap; }
.o { font-size: .72rem; font-weight: 600; white-space: nowrap; }
thead .o { display: block; }
.o-paper { color: var(--of-paper); }
.o-simulated { color: var(--of-simulated); }
.o-measured { color: var(--of-measured); }
summary { cursor: pointer; font-size: .9rem; font-weight: 600; }
details { margin: .75rem 0; }
figure { margin: 1.25rem 0; overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 32rem; height: auto; }
figcaption { font-size: .85rem; color: var(--muted); margin-top: .3rem; max-width: 46rem; }
@media print {
  :root { --ink: #000; --paper: #fff; --muted: #444; --line: #bbb; --soft: #fff; --link: #000; }
  body { max-width: none; padding: 0; font-size: 9pt; }
  table { font-size: 7.5pt; }
  th, td { padding: .15rem .35rem; }
  nav { display: none; }
  .scroll, figure { overflow: visible; break-inside: avoid; }
  figure svg { min-width: 0; max-width: 16cm; }
  h2 { break-after: avoid; }
}
)";

const char* class_of(Origin origin) {
  switch (origin) {
    case Origin::none: return "";
    case Origin::paper: return "o o-paper";
    case Origin::simulated: return "o o-simulated";
    case Origin::measured: return "o o-measured";
  }
  return "";
}

std::string badge(Origin origin) {
  if (origin == Origin::none) return "";
  return fmt::format(" <span class=\"{}\">{}</span>", class_of(origin), origin_name(origin));
}

std::string html(const HtmlText& text) {
  return fmt::format("<p>{}</p>\n", xml_escape(text.text));
}

std::string html_cell(const HtmlTable& table, size_t column, const HtmlCell& cell) {
  const bool number = column < table.columns.size() && table.columns[column].number;
  const std::string text = xml_escape(cell.text) + badge(cell.origin);
  if (column == 0) return fmt::format("<th scope=\"row\">{}</th>", text);
  return fmt::format("<td{}>{}</td>", number ? " class=\"n\"" : "", text);
}

std::string html(const HtmlTable& table) {
  const std::string caption = xml_escape(table.caption);
  std::string out = table.folded ? "<details><summary>" + caption + "</summary>\n" : "";
  out += "<div class=\"scroll\"><table>\n";
  if (!table.caption.empty() && !table.folded) {
    out += fmt::format("<caption>{}</caption>\n", caption);
  }
  out += "<thead><tr>";
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const HtmlColumn& column = table.columns[c];
    out +=
        fmt::format("<th scope=\"col\"{}>{}{}</th>", column.number && c > 0 ? " class=\"n\"" : "",
                    xml_escape(column.name), badge(column.origin));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t c = 0; c < row.size(); ++c) out += html_cell(table, c, row[c]);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n" + (table.folded ? "</details>\n" : "");
}

// The XML declaration has no place inside a page.
std::string html(const HtmlFigure& figure) {
  const size_t begin = figure.svg.find("<svg");
  const std::string svg = begin == std::string::npos ? "" : figure.svg.substr(begin);
  return fmt::format("<figure>\n{}<figcaption>{}{}</figcaption>\n</figure>\n", svg,
                     xml_escape(figure.caption), badge(figure.origin));
}

size_t width(const std::string& text) {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), continues));
}

std::string padded(const std::string& text, size_t to, bool right) {
  const std::string blanks(to - std::min(to, width(text)), ' ');
  return right ? blanks + text : text + blanks;
}

}  // namespace

const char* origin_name(Origin origin) {
  switch (origin) {
    case Origin::none: return "";
    case Origin::paper: return "paper";
    case Origin::simulated: return "simulated";
    case Origin::measured: return "measured here";
  }
  return "";
}

std::string html_of(const HtmlReport& report) {
  const std::string title = xml_escape(report.title);
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      title, kStyle);
  if (!report.summary.empty()) out += html(HtmlText{report.summary});
  if (!report.facts.empty()) {
    out += "<dl>\n";
    for (const auto& [name, value] : report.facts) {
      out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", xml_escape(name), xml_escape(value));
    }
    out += "</dl>\n";
  }
  if (report.sections.size() > 1) {
    out += "<nav>\n";
    for (const HtmlSection& section : report.sections) {
      out += fmt::format("<a href=\"#{}\">{}</a>\n", xml_escape(section.id),
                         xml_escape(section.title));
    }
    out += "</nav>\n";
  }
  for (const HtmlSection& section : report.sections) {
    out += fmt::format("<section>\n<h2 id=\"{}\">{}</h2>\n", xml_escape(section.id),
                       xml_escape(section.title));
    for (const auto& part : section.parts) {
      out += std::visit([](const auto& some) { return html(some); }, part);
    }
    out += "</section>\n";
  }
  return out + "</body>\n</html>\n";
}

std::string text_of(const HtmlTable& table) {
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string> head, origins;
  for (const HtmlColumn& column : table.columns) {
    head.push_back(printable(column.name));
    origins.emplace_back(origin_name(column.origin));
  }
  lines.push_back(head);
  lines.push_back(origins);
  for (const auto& row : table.rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const HtmlCell& cell : row) line.push_back(printable(cell.text));
  }
  std::vector<size_t> widths(table.columns.size(), 0);
  for (const auto& line : lines) {
    for (size_t c = 0; c < std::min(line.size(), widths.size()); ++c) {
      widths[c] = std::max(widths[c], width(line[c]));
    }
  }
  std::string out = table.caption.empty() ? "" : printable(table.caption) + "\n";
  for (const auto& line : lines) {
    std::string text;
    for (size_t c = 0; c < std::min(line.size(), widths.size()); ++c) {
      text += (c > 0 ? "  " : "") + padded(line[c], widths[c], c > 0 && table.columns[c].number);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    if (!text.empty()) out += text + "\n";
  }
  return out;
}

}  // namespace asap
