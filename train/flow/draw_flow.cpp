#include "train/flow/draw_flow.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iomanip>
#include <map>
#include <set>
#include <utility>

#include "autograd/base/text.h"

namespace ink {
namespace {

using Ops = std::vector<FlowOp>;

// A module with its parts in the order in which they ran; or, if `op` is not negative, an op.
struct Part {
  std::string name;  // within the part around it; empty: an op of that part itself
  int64_t op = -1;
  bool folded = false;  // blocks that repeat the one before: their parts are not shown
  std::vector<Part> parts = {};
};

const FlowOp& at(const Ops& ops, int64_t i) { return ops[static_cast<size_t>(i)]; }

// "h.0.attn" -> "h.0", "attn"
std::vector<std::string> path_of(const std::string& module) {
  std::vector<std::string> path;
  TextStream pieces(module);
  for (std::string piece; std::getline(pieces, piece, '.');) {
    const bool number = std::all_of(piece.begin(), piece.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
    number && !path.empty() ? path.back() += "." + piece : path.emplace_back(piece);
  }
  return path;
}

Part tree_of(const Ops& ops, const std::set<int64_t>& shown) {
  Part root;
  for (const int64_t i : shown) {
    Part* part = &root;
    for (const std::string& name : path_of(at(ops, i).module)) {
      const auto found = std::find_if(part->parts.begin(), part->parts.end(),
                                      [&](const Part& p) { return p.op < 0 && p.name == name; });
      part = found == part->parts.end() ? &part->parts.emplace_back(Part{name}) : &*found;
    }
    part->parts.push_back({"", i});
  }
  return root;
}

// An op that is alone in its module takes the module's name, and so does a module.
void join_single(Part& part) {
  for (Part& inner : part.parts) {
    join_single(inner);
    if (inner.op >= 0 || inner.folded || inner.parts.size() != 1) continue;
    Part only = std::move(inner.parts[0]);
    only.name = inner.name + (only.op >= 0 || only.name.empty() ? "" : ".") + only.name;
    inner = std::move(only);
  }
}

void collect(const Part& part, std::vector<int64_t>& ops) {
  if (part.op >= 0) ops.push_back(part.op);
  for (const Part& inner : part.parts) collect(inner, ops);
}
std::vector<int64_t> ops_in(const Part& part) {
  std::vector<int64_t> list;
  collect(part, list);
  return list;
}

// Equal for blocks that do the same, each with the output of the one before.
std::string signature(const Ops& ops, const Part& block) {
  TextStream text;
  for (const int64_t i : ops_in(block)) {
    const FlowOp& op = at(ops, i);
    text << op.name << op.dtype << op.module.substr(std::min(op.module.size(), block.name.size()));
    for (const Shape& shape : op.outputs) text << shape;
    for (const FlowOp::Input& input : op.inputs)
      text << (input.from < 0 ? -1 : i - input.from) << input.shape;
    text << ";";
  }
  return text.str();
}

// "h.2" -> "h."; empty without a number.
std::string list_of(const std::string& name) {
  const size_t end = name.find_last_not_of("0123456789") + 1;
  return end > 0 && end < name.size() ? name.substr(0, end) : "";
}

void fold(const Ops& ops, Part& part) {
  std::vector<Part> kept;
  std::string before, first, last;  // the signature; the names of what is folded
  for (Part& inner : part.parts) {
    fold(ops, inner);
    const bool is_block = inner.op < 0 && !list_of(inner.name).empty();
    const std::string own = is_block ? list_of(inner.name) + signature(ops, inner) : "";
    if (own.empty() || own != before) {
      kept.push_back(std::move(inner));
    } else {
      if (!kept.back().folded) {
        first = inner.name;
        last = kept.back().name;
        kept.push_back({"", -1, true, {}});
      }
      Part& same = kept.back();
      const bool one = same.parts.empty();
      same.name = (one ? first : first + " to " + inner.name) + ": the same as " + last;
      same.parts.push_back(std::move(inner));
    }
    before = own;
  }
  part.parts = std::move(kept);
}

struct Sums {
  int64_t kept = 0;
  double forward = 0, backward = 0;
};

Sums sums_of(const Ops& ops, const Part& part) {
  Sums sums;
  for (const int64_t i : ops_in(part)) {
    sums.kept += at(ops, i).bytes_kept;
    sums.forward += at(ops, i).forward_ms;
    sums.backward += at(ops, i).backward_ms;
  }
  return sums;
}

// What the options ask for: its tree, and the ops before it that it reads.
struct Drawing {
  Part tree;
  std::set<int64_t> outside;
};

Drawing drawing(const Ops& ops, const DrawOptions& options) {
  const std::string& module = options.module;
  std::set<int64_t> shown, outside;
  for (int64_t i = 0; i < std::ssize(ops); ++i) {
    const bool within = module.empty() || at(ops, i).module == module ||
                        at(ops, i).module.rfind(module + ".", 0) == 0;
    if (within) shown.insert(i);
  }
  INK_CHECK(!shown.empty(), "draw: expected a module with ops, got '", module, "'");
  for (const int64_t i : shown)
    for (const FlowOp::Input& input : at(ops, i).inputs)
      if (input.from >= 0 && shown.count(input.from) == 0) outside.insert(input.from);
  Drawing drawn{tree_of(ops, shown), std::move(outside)};
  if (!options.all) fold(ops, drawn.tree);
  join_single(drawn.tree);
  return drawn;
}

std::string bytes_text(int64_t bytes) {
  if (bytes == 0) return "0";
  const bool large = bytes >= 1'000'000;
  const double x = static_cast<double>(bytes) / (large ? 1e6 : 1e3);
  TextStream text;
  text << std::fixed << std::setprecision(x < 10 ? 1 : 0) << x << (large ? " MB" : " kB");
  return text.str();
}

std::string ms_text(double ms) {
  TextStream text;
  text << std::fixed << std::setprecision(ms < 10 ? 3 : ms < 100 ? 2 : 1) << ms;
  return text.str();
}

std::string outputs_text(const FlowOp& op) {
  bool alike = true;
  for (const Shape& shape : op.outputs) alike = alike && shape == op.outputs[0];
  if (!alike) return detail::text(op.outputs[0], ", ...");
  const std::string count = op.outputs.size() == 1 ? "" : std::to_string(op.outputs.size()) + " x ";
  return count + detail::text(op.outputs[0]);
}

std::string cut(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

// ---- text

using Cells = std::array<std::string, 7>;  // number, name, reads, output, kept, forward, backward
constexpr std::array<size_t, 7> kWidest = {4, 38, 11, 19, 7, 7, 8};  // characters

// Ops by their numbers, and operands that belong to no module by their names.
std::string reads_text(const FlowOp& op) {
  std::string text;
  std::set<std::string> seen;
  for (const FlowOp::Input& input : op.inputs) {
    const bool from_op = input.from >= 0;
    if (!from_op && input.parameter.find('.') != std::string::npos) continue;
    const std::string name = from_op ? std::to_string(input.from + 1) : input.parameter;
    if (!name.empty() && seen.insert(name).second) text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

class Table {
 public:
  Table(const Ops& ops, size_t columns) : ops_(ops), columns_(columns) {}

  void add(const Part& part, const std::string& name, size_t depth) {
    const Sums sums = sums_of(ops_, part);
    Cells cells{"",
                std::string(2 * depth, ' ') + name,
                "",
                "",
                bytes_text(sums.kept),
                ms_text(sums.forward),
                ms_text(sums.backward)};
    if (part.op >= 0) {
      const FlowOp& op = at(ops_, part.op);
      cells[0] = std::to_string(part.op + 1);
      cells[1] += (name.empty() ? "" : " ") + op.name;
      cells[2] = reads_text(op);
      cells[3] = outputs_text(op);
    }
    rows_.push_back(cells);
    if (part.folded) return;
    for (const Part& inner : part.parts) add(inner, inner.name, depth + 1);
  }
  void add_outside(int64_t i) {
    rows_.push_back({std::to_string(i + 1), at(ops_, i).title(), "", outputs_text(at(ops_, i))});
  }

  std::string text() const {
    std::array<size_t, 7> widths{};
    for (const Cells& row : rows_)
      for (size_t i = 0; i < row.size(); ++i)
        widths[i] = std::min(kWidest[i], std::max(widths[i], row[i].size()));
    fit(widths);
    TextStream out;
    for (const Cells& row : rows_) {
      TextStream line;
      for (size_t i = 0; i < row.size(); ++i) {
        const bool left = i >= 1 && i <= 3;
        if (widths[i] > 0)
          line << (i == 0 ? "" : "  ") << (left ? std::left : std::right)
               << std::setw(static_cast<int>(widths[i])) << cut(row[i], widths[i]);
      }
      const std::string written = line.str();
      out << written.substr(0, written.find_last_not_of(' ') + 1) << "\n";
    }
    return out.str();
  }

 private:
  // Leaves columns out (their width becomes 0), and shortens names, until a line fits.
  void fit(std::array<size_t, 7>& widths) const {
    const auto excess = [&] {
      size_t width = 0;
      for (const size_t column : widths) width += column > 0 ? column + 2 : 0;
      return width > columns_ + 2 ? width - columns_ - 2 : 0;
    };
    size_t& name = widths[1];
    const auto shorten = [&](size_t least) {
      name -= std::min(excess(), name > least ? name - least : 0);
    };
    for (const size_t column : {2, 3, 4}) {  // reads, output, kept
      if (excess() > 0) widths[column] = 0;
      shorten(24);
    }
    shorten(8);
  }

  const Ops& ops_;
  size_t columns_;
  std::vector<Cells> rows_ = {{"#", "module, op", "reads", "output", "kept", "forward", "backward"},
                              {"", "", "", "", "", "ms", "ms"}};
};

// ---- Graphviz

std::string escaped(const std::string& text) {
  std::string html;
  for (const char c : text)
    html += c == '&'   ? "&amp;"
            : c == '<' ? "&lt;"
            : c == '>' ? "&gt;"
            : c == '"' ? "&quot;"
                       : std::string(1, c);
  return html;
}

constexpr const char *kInk = "#1b1f24", *kQuiet = "#5b6570";
constexpr const char* kBreak = "<br align=\"left\"/>";
constexpr const char* kHead = R"(digraph {
  graph [fontname="Helvetica" fontsize=12 ranksep=0.3 nodesep=0.25 bgcolor=transparent];
  node [fontname="Helvetica" fontsize=11 shape=plain];
  edge [fontname="Helvetica" fontsize=9 color="#5b6570" fontcolor="#5b6570" arrowsize=0.6];
)";

class Picture {
 public:
  explicit Picture(const Ops& ops) : ops_(ops) { out_ << kHead; }

  void add(const Part& part) {
    if (part.op >= 0 || part.folded) return add_box(part);
    out_ << "  subgraph cluster_" << frames_++ << " {\n  class=module; style=rounded; "
         << "color=\"#a9b2bc\"; labeljust=l; label=<"
         << in_colour("<b>" + escaped(part.name) + "</b>", kInk, 11) << kBreak;
    const Sums sums = sums_of(ops_, part);
    out_ << in_colour("keeps " + bytes_text(sums.kept), kInk) << kBreak << forward_text(sums)
         << kBreak << backward_text(sums) << kBreak << ">;\n";
    for (const Part& inner : part.parts) add(inner);
    out_ << "  }\n";
  }
  void add_outside(int64_t i) {
    boxes_[i] = i;
    out_ << "  n" << i << " [class=outside shape=box style=\"dashed,rounded\" color=\"#a9b2bc\" "
         << "label=<" << escaped(at(ops_, i).title()) << ">];\n";
  }

  std::string text(const std::set<int64_t>& outside) {
    for (const auto& [op, box] : boxes_)
      if (outside.count(op) == 0) add_edges(op, box);
    return out_.str() + "}\n";
  }

 private:
  static std::string in_colour(const std::string& html, const char* colour, int size = 9) {
    return detail::text("<font color=\"", colour, "\" point-size=\"", size, "\">", html, "</font>");
  }
  static std::string forward_text(const Sums& sums) {
    return in_colour("forward " + ms_text(sums.forward) + " ms", "#0072b2");
  }
  static std::string backward_text(const Sums& sums) {
    return in_colour("backward " + ms_text(sums.backward) + " ms", "#b3451e");
  }
  void row(const std::string& html) { out_ << "<tr><td align=\"left\">" << html << "</td></tr>"; }

  void add_box(const Part& part) {
    const std::vector<int64_t> inside = ops_in(part);
    for (const int64_t i : inside) boxes_[i] = inside[0];
    out_ << "  n" << inside[0] << " [class=op label=<<table border=\"1\" cellborder=\"0\" "
         << "cellspacing=\"0\" cellpadding=\"3\" style=\"rounded\" color=\"#a9b2bc\" "
         << "bgcolor=\"#f6f8fa\">";
    const std::string name = escaped(part.name);
    const Sums sums = sums_of(ops_, part);
    std::string sizes = "keeps " + bytes_text(sums.kept);
    if (part.op < 0) {
      row(in_colour("<b>" + name + "</b>", kInk, 11));
    } else {
      const FlowOp& op = at(ops_, part.op);
      row(in_colour((name.empty() ? "" : name + " ") + "<b>" + escaped(op.name) + "</b>", kInk,
                    11));
      add_parameters(op);
      sizes = "output " + escaped(outputs_text(op)) + ", " + sizes;
    }
    row(in_colour(sizes, kInk));
    row(forward_text(sums) + "  " + backward_text(sums));
    out_ << "</table>>];\n";
  }
  // By their names within the module.
  void add_parameters(const FlowOp& op) {
    for (const FlowOp::Input& input : op.inputs) {
      if (input.parameter.empty()) continue;
      const bool own = input.parameter.rfind(op.module + ".", 0) == 0;
      const std::string name = own ? input.parameter.substr(op.module.size() + 1) : input.parameter;
      row(in_colour(escaped(name + " " + detail::text(input.shape)), kQuiet));
    }
  }

  // An arrow from each op that is read, with the shape that the reader sees, and how often.
  void add_edges(int64_t reader, int64_t box) {
    std::map<std::pair<int64_t, std::string>, int> arrows;
    for (const FlowOp::Input& input : at(ops_, reader).inputs)
      if (input.from >= 0 && boxes_.at(input.from) != box)
        ++arrows[{boxes_.at(input.from), detail::text(input.shape)}];
    for (const auto& [arrow, count] : arrows) {
      if (!drawn_.insert({arrow.first, box}).second) continue;
      out_ << "  n" << arrow.first << " -> n" << box << " [label=\" "
           << (count > 1 ? std::to_string(count) + " x " : "") << arrow.second
           << (reader - arrow.first == 1 ? "\" weight=20];\n" : "\"];\n");
    }
  }

  const Ops& ops_;
  TextStream out_;
  int frames_ = 0;
  std::map<int64_t, int64_t> boxes_;  // of ops: the op that names the box
  std::set<std::pair<int64_t, int64_t>> drawn_;
};

}  // namespace

std::string print_flow(const Ops& ops, const DrawOptions& options) {
  const Drawing drawn = drawing(ops, options);
  Table table(ops, options.columns);
  for (const int64_t i : drawn.outside) table.add_outside(i);
  if (options.module.empty()) {
    table.add(drawn.tree, "all", 0);
  } else {
    for (const Part& part : drawn.tree.parts) table.add(part, part.name, 0);
  }
  return table.text();
}

std::string flow_to_dot(const Ops& ops, const DrawOptions& options) {
  const Drawing drawn = drawing(ops, options);
  Picture picture(ops);
  for (const int64_t i : drawn.outside) picture.add_outside(i);
  for (const Part& part : drawn.tree.parts) picture.add(part);
  return picture.text(drawn.outside);
}

}  // namespace ink
