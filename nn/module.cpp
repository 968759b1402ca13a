#include "nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "autograd/base/text.h"
#include "autograd/io/foreign.h"

namespace ink {
namespace {

// fields() gives pointers that allow writes; the walks of const members only read.
std::vector<Field> fields_of(const Module& module) { return const_cast<Module&>(module).fields(); }

// Calls f(name, field) for every parameter and buffer that exists, depth first.
template <class F>
void for_each_tensor(const Module& module, const std::string& prefix, F&& f) {
  for (const Field& field : fields_of(module)) {
    if (field.module) {
      for_each_tensor(*field.module, prefix + field.name + ".", f);
    } else if (field.tensor()->defined()) {
      f(prefix + field.name, field);
    }
  }
}

// Equal for tied tensors.
const void* identity(const Tensor& x) { return x.shared_impl().get(); }

// The same, each tensor once, under its first name.
template <class F>
void for_each_distinct(const Module& module, F&& f) {
  std::unordered_set<const void*> seen;
  for_each_tensor(module, "", [&](const std::string& name, const Field& field) {
    if (seen.insert(identity(*field.tensor())).second) f(name, field);
  });
}

// The class without namespaces and template arguments.
std::string type_name(const Module& module) {
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, nullptr), std::free);
  std::string name = text ? text.get() : typeid(module).name();
  if (name.back() == '>') name.erase(name.find('<'));
  return name.substr(name.rfind(':') + 1);
}

// The addresses of parameters and modules. They show members of a module that are not among its
// fields.
template <class T>
struct Addresses {
  std::mutex mutex;
  std::set<const void*> all;

  static Addresses& instance() {
    static auto* const made = new Addresses;  // for modules that outlive the end of main
    return *made;
  }
  void enter(const T* x) {
    const std::lock_guard lock(mutex);
    all.insert(x);
  }
  void leave(const T* x) {
    const std::lock_guard lock(mutex);
    all.erase(x);
  }
  std::vector<const T*> within(const Module& module, size_t bytes) {
    const char* first = static_cast<const char*>(dynamic_cast<const void*>(&module));
    const std::lock_guard lock(mutex);
    std::vector<const T*> found;
    for (auto x = all.lower_bound(first); x != all.end() && *x < first + bytes; ++x)
      found.push_back(static_cast<const T*>(*x));
    return found;
  }
};
auto& parameters_alive() { return Addresses<Parameter>::instance(); }
auto& modules_alive() { return Addresses<Module>::instance(); }

// What the walks over fields have met, and what was named already.
struct Met {
  std::unordered_set<const void*> parameters;
  std::unordered_set<const Module*> modules;
};

void meet(const Module& module, Met& met) {
  met.modules.insert(&module);
  for (const Field& field : fields_of(module))
    if (field.module) meet(*field.module, met);
}

// The field before a member in memory; empty if there is none.
std::string field_before(const Module& module, const void* member) {
  const Field* before = nullptr;
  const void* begin = dynamic_cast<const void*>(&module);
  const std::vector<Field> fields = fields_of(module);
  const auto at = [](const Field& field) {
    return field.module ? static_cast<const void*>(field.module) : field.tensor();
  };
  for (const Field& field : fields)
    if (at(field) >= begin && at(field) < member && (!before || at(field) > at(*before)))
      before = &field;
  return before ? before->name : "";
}

// Has it fields for parameters, defined or not?
bool has_parameters(const Module& module) {
  const std::vector<Field> fields = fields_of(module);
  return std::any_of(fields.begin(), fields.end(), [](const Field& field) {
    return field.parameter || (field.module && has_parameters(*field.module));
  });
}

// Throws if members are missing from their module's fields, and names them. bytes: what is known of
// the object's size; its class may have no INK_FIELDS of its own.
void check_forgotten(const Module& module, Met& met, size_t bytes = 0) {
  bytes = std::max(bytes, module.object_bytes());
  for (const Field& field : fields_of(module))
    if (field.module) check_forgotten(*field.module, met, field.bytes);
  std::string found;
  const auto forgotten = [&](const std::string& what, const void* member) {
    const std::string before = field_before(module, member);
    found += detail::text(found.empty() ? " " : ", ", "a ", what, " declared ",
                          before.empty() ? "before all fields" : "after " + before);
  };
  const auto is_new = [&](const Parameter& p) {
    return p.defined() && p.requires_grad() && met.parameters.insert(identity(p)).second;
  };
  for (const Module* m : modules_alive().within(module, bytes)) {
    if (met.modules.count(m)) continue;
    bool any = false;
    for_each_tensor(*m, "", [&](const std::string&, const Field& field) {
      any |= field.parameter && is_new(*field.parameter);
    });
    // Left out on purpose may be one that is frozen, or that the extended class has.
    const bool drops = !has_parameters(*m) && !field_before(module, m).empty();
    if (any || drops) forgotten(type_name(*m), m);
    meet(*m, met);
  }
  for (const Parameter* p : parameters_alive().within(module, bytes))
    if (is_new(*p)) forgotten(detail::text("Parameter of shape ", p->shape()), p);
  INK_CHECK(found.empty(), type_name(module), ": INK_FIELDS lacks", found,
            "; name it there, or no optimizer would update it, no checkpoint have it, and neither "
            "to() nor eval() reach it");
}

}  // namespace

Parameter::Parameter() { parameters_alive().enter(this); }
Parameter::Parameter(const Parameter& other) : Tensor(other) { parameters_alive().enter(this); }
Parameter::Parameter(Parameter&& other) noexcept : Tensor(std::move(other)) {
  parameters_alive().enter(this);
}
Parameter::~Parameter() { parameters_alive().leave(this); }

Parameter::Parameter(const Tensor& value) : Parameter() {
  if (!value.defined()) return;
  INK_CHECK(value.is_leaf(), "Parameter: expected a tensor that is not in a graph, got ",
            value.shape(), " computed by ", value.slot()->node->name,
            "; compute it under NoGrad, or use its detach()");
  static_cast<Tensor&>(*this) = value.requires_grad() ? value : Buffer(value);
  requires_grad_().impl().is_of_module = true;
}

Module::Module() { modules_alive().enter(this); }
Module::Module(Module&& other) noexcept : training(other.training) { modules_alive().enter(this); }
Module::~Module() { modules_alive().leave(this); }

Buffer::Buffer(const Tensor& value)
    : Tensor(value.defined() && value.is_view() ? value.detach().clone() : value.detach()) {
  if (defined()) impl().is_of_module = true;
}

std::vector<std::string> detail::split_names(const char* list) {
  TextStream text(list);
  std::vector<std::string> names;
  for (std::string name; std::getline(text >> std::ws, name, ',');) {
    name.erase(name.find_last_not_of(" \t\n") + 1);
    names.push_back(name);
  }
  return names;
}

std::vector<Field> detail::named_fields(std::vector<Field> base,
                                        const std::vector<std::string>& names,
                                        std::initializer_list<Field> fields) {
  base.reserve(base.size() + fields.size());
  auto name = names.begin();
  for (const Field& field : fields) {
    for (const Field& other : base)
      INK_CHECK(other.name != *name, "INK_FIELDS: two fields have the name ", *name);
    if (field.given()) base.emplace_back(field).name = *name;
    ++name;
  }
  return base;
}

void detail::check_own_fields(const Module& module, size_t bytes) {
  INK_CHECK(module.object_bytes() == bytes, type_name(module),
            ": has members of its own and no INK_FIELDS; name them there, after the class that it "
            "extends: INK_FIELDS(Base, member)");
}

size_t detail::checked_index(const char* list, size_t i, size_t size) {
  INK_CHECK(i < size, list, ": index ", static_cast<int64_t>(i), " is out of range for ", size,
            size == 1 ? " entry" : " entries");
  return i;
}

std::vector<Field> Sequential::fields() {
  std::vector<Field> list;
  for (size_t i = 0; i < size(); ++i) {
    list.emplace_back((*this)[i]).name = std::to_string(i);
    list.back().bytes = steps_[i].bytes();
  }
  return list;
}

// ---- what it holds

NamedTensors Module::named_parameters() const {
  NamedTensors list;
  for_each_distinct(*this, [&](const std::string& name, const Field& field) {
    if (field.parameter) list.emplace_back(name, *field.parameter);
  });
  Met met;
  for (const auto& entry : list) met.parameters.insert(identity(entry.second));
  meet(*this, met);
  check_forgotten(*this, met);
  return list;
}

NamedTensors Module::named_buffers() const {
  NamedTensors list;
  for_each_distinct(*this, [&](const std::string& name, const Field& field) {
    if (field.buffer) list.emplace_back(name, *field.buffer);
  });
  return list;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> list;
  for (const auto& entry : named_parameters()) list.push_back(entry.second);
  return list;
}

int64_t Module::num_parameters() const {
  int64_t count = 0;
  for (const Tensor& parameter : parameters()) count += parameter.numel();
  return count;
}

NamedTensors Module::state_dict() const {
  NamedTensors list;
  for_each_distinct(*this, [&](const std::string& name, const Field& field) {
    if (field.saved) list.emplace_back(name, field.tensor()->detach());
  });
  return list;
}

// Gives the target the value: by an exchange of their memory where nobody else can see the value's.
static void take_or_copy(Tensor& target, Tensor value) {
  value = value.to(target.device());
  const auto is_whole = [](const Tensor& x) {
    const Storage& memory = *x.storage();
    return x.is_contiguous() && memory.bytes == x.numel() * size_of(x.dtype()) && !memory.foreign();
  };
  const bool alone = value.shared_impl().use_count() == 1 && value.storage().use_count() == 1;
  if (alone && value.dtype() == target.dtype() && is_whole(value) && is_whole(target)) {
    target.storage()->swap(*value.storage());
  } else {
    target.copy_(value);
  }
}

void Module::load_state_dict(NamedTensors state) {
  std::unordered_map<std::string, Tensor> targets;
  for_each_tensor(*this, "", [&](const std::string& name, const Field& field) {
    if (field.saved) targets.emplace(name, *field.tensor());
  });
  Problems problems;
  std::unordered_map<const void*, const NamedTensors::value_type*> given;
  for (const auto& entry : state) {
    const auto& [name, value] = entry;
    const auto target = targets.find(name);
    if (target == targets.end()) {
      problems.add({"unexpected: ", printable(name, 60), " ",
                    value.defined() ? detail::text(value.shape()) : "undefined"});
      continue;
    }
    if (!value.defined()) {
      problems.add({"undefined: ", name, ": expected ", target->second.shape()});
      given.emplace(identity(target->second), &entry);
      continue;
    }
    if (value.shape() != target->second.shape()) {
      problems.add(
          {"shape: ", name, ": expected ", target->second.shape(), ", got ", value.shape()});
    }
    const auto [first, added] = given.emplace(identity(target->second), &entry);
    if (!added && !(first->second->second.defined() && equal(first->second->second, value))) {
      if (first->second->first == name)
        problems.add({"twice: ", name, ", with other values"});
      else
        problems.add({"tied: ", name, " is ", first->second->first,
                      " in this model, and their values differ"});
    }
  }
  for_each_distinct(*this, [&](const std::string& name, const Field& field) {
    if (field.saved && !given.count(identity(*field.tensor())))
      problems.add({"missing: ", name, " ", field.tensor()->shape()});
  });
  INK_CHECK(problems.empty(), "load_state_dict: the names or shapes do not fit:", problems.text());

  const NoGrad no_grad;
  for (auto& [name, value] : state) take_or_copy(targets.at(name), std::exchange(value, {}));
}

// ---- what changes all of it

void Module::apply(const std::function<void(Module&)>& f) {
  for (const Field& field : fields()) {
    if (field.module) field.module->apply(f);
  }
  f(*this);
}

void Module::train(bool mode) {
  apply([mode](Module& module) { module.training = mode; });
}

void Module::zero_grad() {
  for (Tensor& parameter : parameters()) parameter.set_grad({});
}

// Moves or converts x's gradient like x.
static void bring_grad(Tensor& x) {
  if (!x.slot()) return;
  const Tensor g = x.grad();
  x.slot()->dtype = x.dtype();
  x.slot()->device = x.device();
  if (g.defined()) x.set_grad(g.to(x.device()).to(x.dtype()));
}

void Module::to(Device device) {
  const NoGrad no_grad;
  for_each_distinct(*this, [&](const std::string&, const Field& field) {
    Tensor& x = *field.tensor();
    if (x.device() == device) return;
    x.storage()->swap(*x.detach().to(device).storage());
    bring_grad(x);
  });
}

void Module::to(DType dtype) {
  INK_CHECK(ink::is_floating(dtype), "to: expected a floating dtype for a module, got ", dtype);
  const NoGrad no_grad;
  for_each_distinct(*this, [&](const std::string&, const Field& field) {
    Tensor& x = *field.tensor();
    if (!x.is_floating() || x.dtype() == dtype) return;
    x.impl().array = x.detach().to(dtype).array();
    bring_grad(x);
  });
}

// ---- printing

namespace {

// 1234567 as 1,234,567.
std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

// Puts text on lines of its own, indented.
std::string indented(const std::string& text) {
  std::string result = "\n  ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

// The lines of a module's children. Numbered ones that print alike share a line: "(0-3): 4 x
// Block(".
std::vector<std::string> children(const Module& module) {
  struct Run {
    std::string first, last, text;
    int64_t count;
  };
  std::vector<Run> runs;
  for (const Field& field : fields_of(module)) {
    if (!field.module) continue;
    const std::string text = field.module->to_string();
    const bool numbered = std::isdigit(static_cast<unsigned char>(field.name[0])) != 0;
    if (numbered && !runs.empty() && runs.back().text == text) {
      runs.back().last = field.name;
      ++runs.back().count;
    } else {
      runs.push_back({field.name, field.name, text, 1});
    }
  }
  std::vector<std::string> lines;
  for (const auto& [first, last, text, count] : runs) {
    lines.push_back(count == 1 ? detail::text("(", first, "): ", text)
                               : detail::text("(", first, "-", last, "): ", count, " x ", text));
  }
  return lines;
}

}  // namespace

std::string Module::to_string() const {
  const int64_t parameters = num_parameters();
  const std::string count = parameters ? detail::text("  # ", grouped(parameters)) : "";
  const std::vector<std::string> lines = children(*this);
  if (lines.empty()) return detail::text(type_name(*this), "(", extra_repr(), ")", count);
  std::string text = detail::text(type_name(*this), "(", count);
  if (!extra_repr().empty()) text += indented(extra_repr());
  for (const std::string& line : lines) text += indented(line);
  return text + "\n)";
}

std::ostream& operator<<(std::ostream& out, const Module& module) {
  return out << module.to_string();
}

}  // namespace ink
