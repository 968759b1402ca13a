// Module: a layer or a model; a tree of named parameters, buffers and further modules.
//
//   struct Affine : Module {
//     Parameter weight, bias;
//     explicit Affine(int64_t n) : weight(ones({n})), bias(zeros({n})) {}
//     Tensor operator()(const Tensor& x) const { return x * weight + bias; }
//     INK_FIELDS(weight, bias)
//   };
//
// A module is called like a function, is moved but never copied, and names its fields once, in
// INK_FIELDS; everything below is a walk over them. Names join with dots: h.0.ln_1.weight.
//
// Copying a Parameter ties it: both names mean one parameter (a.weight = b.weight). It is then
// listed and saved once, under the name that comes first.
//
// A module that extends another names it first: INK_FIELDS(Affine, scale). A field may also be a
// std::optional or std::unique_ptr of a module, or a std::vector of parameters or modules.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/base/text.h"
#include "autograd/basic_ops.h"
#include "autograd/io/serialize.h"
#include "autograd/tensor.h"

namespace ink {

class Module;

/// A tensor that training changes. An undefined one does not exist, such as a bias that is not
/// wanted.
struct Parameter : Tensor {
  Parameter();
  /// A leaf that requires grad, on value's memory. If value is a view, its memory is copied; if
  /// value is such a leaf already, it is taken itself. Floating dtypes only. Throws if value was
  /// computed in a graph, because training would then not change what value was computed from.
  Parameter(const Tensor& value);
  Parameter(const Parameter& other);
  Parameter(Parameter&& other) noexcept;
  Parameter& operator=(const Parameter&) = default;
  Parameter& operator=(Parameter&&) noexcept = default;
  ~Parameter();
};

/// A tensor that is saved with the model and moves with it, but is not trained, such as running
/// statistics.
struct Buffer : Tensor {
  Buffer() = default;
  /// Outside any graph, with value's memory; a copy of it if value is a view.
  Buffer(const Tensor& value);
};

/// A buffer that moves with the model and is not saved, because the constructor computes it: a
/// table of cosines. What PyTorch registers with persistent=False.
struct UnsavedBuffer : Buffer {
  using Buffer::Buffer;
};

/// One entry of INK_FIELDS. Exactly one of the three pointers is set, or none for an optional
/// module that is missing.
struct Field {
  Field(Parameter& p) : parameter(&p) {}
  Field(Buffer& b) : buffer(&b) {}
  Field(UnsavedBuffer& b) : buffer(&b), saved(false) {}
  template <std::derived_from<Module> M>
  Field(M& m) : module(&m), bytes(sizeof(M)) {}
  template <class M>
  Field(std::optional<M>& m) {
    if (m) *this = Field(*m);
  }
  template <class M>
  Field(std::unique_ptr<M>& m) : module(m.get()), bytes(sizeof(M)) {}
  template <class T>
  Field(std::vector<T>& items);  // named NAME.0, NAME.1, ...
  Field(Tensor&) = delete;       // say whether training changes it: make it a Parameter or a Buffer

  bool given() const { return parameter || buffer || module; }
  Tensor* tensor() const { return parameter ? static_cast<Tensor*>(parameter) : buffer; }

  std::string name;
  Parameter* parameter = nullptr;
  Buffer* buffer = nullptr;
  bool saved = true;
  Module* module = nullptr;
  size_t bytes = 0;               // of the module's object, at least
  std::shared_ptr<Module> owned;  // the target of `module` if it was made for a std::vector
};

class Module {
 public:
  Module();
  Module(Module&& other) noexcept;
  Module& operator=(Module&&) = default;
  virtual ~Module();

  // ---- what a layer defines
  /// Its parameters, buffers and modules, in order: INK_FIELDS writes this.
  virtual std::vector<Field> fields() { return {}; }
  /// The size of the module's own object: INK_FIELDS writes this, too.
  virtual size_t object_bytes() const { return sizeof(Module); }
  /// The text between the brackets of its printed line: "in_features=2, out_features=3".
  virtual std::string extra_repr() const { return {}; }

  // ---- its tensors, themselves and not copies
  /// Throws if INK_FIELDS lacks a module, a Parameter or the extended module, and names it; frozen
  /// ones may be left out. Not found are buffers; modules without parameters before the first
  /// field; members in a std::vector or behind a pointer; and those of a class that extends another
  /// and has no INK_FIELDS at all, if the module is not itself a field, nor made by add_model,
  /// make_attention, make_mlp or make_block.
  std::vector<Tensor> parameters() const;
  NamedTensors named_parameters() const;
  NamedTensors named_buffers() const;
  int64_t num_parameters() const;  // elements, tied ones once
  /// Parameters and buffers but those that are not saved, detached. They share the model's memory,
  /// so that training changes them: clone() those that are to stay as they are.
  NamedTensors state_dict() const;
  /// Copies values in and converts their dtype; handles to the parameters stay valid. If names are
  /// missing or unexpected, or shapes differ, one error lists them all, and nothing is copied. A
  /// tied parameter may come under any of its names. Memory that `state` alone holds, as in
  /// load_state_dict(load(file)), is taken instead of copied.
  void load_state_dict(NamedTensors state);

  // ---- changes of the whole tree
  void train(bool mode = true);  // sets `training`, which layers read
  void eval() { train(false); }
  void zero_grad();  // gradients become undefined
  /// Moves the memory; handles to the parameters stay valid, and tied parameters stay tied.
  void to(Device device);
  void to(const char* device) { to(parse_device(device)); }  // "cpu", "cuda", "cuda:1"
  /// Converts floating tensors and gradients; handles stay valid, and tied parameters stay tied.
  /// Convert before an optimizer takes the parameters.
  void to(DType dtype);
  /// Calls f for every module of the tree, and for a module after those that it holds.
  void apply(const std::function<void(Module&)>& f);

  /// The tree as PyTorch prints it, with the number of parameters after "#".
  std::string to_string() const;

  bool training = true;
};

std::ostream& operator<<(std::ostream& out, const Module& module);

namespace detail {
/// A size of a layer: n, or an error that names the layer.
inline int64_t checked_size(const char* layer, int64_t n) {
  INK_CHECK(n >= 0, layer, ": expected a size of 0 or more, got ", n);
  return n;
}
/// Throws if the module's class, of this size, has members of its own and no INK_FIELDS: only what
/// its base names would be trained and saved.
void check_own_fields(const Module& module, size_t bytes);
template <class Made, class... Args>
std::unique_ptr<Made> make_with_fields(const Args&... args) {
  auto made = std::make_unique<Made>(args...);
  check_own_fields(*made, sizeof(Made));
  return made;
}
/// The items as fields with the names 0, 1, ...
template <class T>
std::vector<Field> numbered_fields(std::vector<T>& items) {
  std::vector<Field> list;
  for (size_t i = 0; i < items.size(); ++i) {
    Field field(items[i]);
    field.name = std::to_string(i);
    if (field.given()) list.push_back(std::move(field));
  }
  return list;
}
/// i, or an error if there are not so many.
size_t checked_index(const char* list, size_t i, size_t size);
}  // namespace detail

/// Modules of one type, named 0, 1, ...: ModuleList<Block> h;
template <class M>
class ModuleList : public Module {
 public:
  ModuleList() = default;
  /// `count` modules, each made from the same arguments.
  template <class... Args>
  explicit ModuleList(int64_t count, const Args&... args) {
    for (int64_t i = 0; i < count; ++i) modules_.emplace_back(args...);
  }
  /// ModuleList<Linear> layers{Linear(2, 3), Linear(3, 4)};
  template <std::same_as<M>... More>
  explicit ModuleList(M first, More... more) {
    modules_.push_back(std::move(first));
    (modules_.push_back(std::move(more)), ...);
  }
  explicit ModuleList(std::vector<M> modules) : modules_(std::move(modules)) {}
  void push_back(M module) { modules_.push_back(std::move(module)); }
  size_t size() const { return modules_.size(); }
  M& operator[](size_t i) { return modules_[detail::checked_index("ModuleList", i, size())]; }
  const M& operator[](size_t i) const {
    return modules_[detail::checked_index("ModuleList", i, size())];
  }
  auto begin() { return modules_.begin(); }
  auto end() { return modules_.end(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

  std::vector<Field> fields() override { return detail::numbered_fields(modules_); }

 private:
  std::vector<M> modules_;
};

/// Parameters in a list, named 0, 1, ...
class ParameterList : public ModuleList<Parameter> {
 public:
  ParameterList() = default;
  ParameterList(std::initializer_list<Tensor> values) {
    for (const Tensor& value : values) push_back(value);
  }
};

/// Modules that map one tensor to one tensor; each takes the result of the one before:
///   Sequential net{Linear(2, 16), Tanh(), Linear(16, 1)};
/// Use braces, because they make the layers (and draw their weights) from left to right.
class Sequential : public Module {
 public:
  class Step {
   public:
    template <class M, class = std::enable_if_t<std::is_base_of_v<Module, M>>>
    Step(M module)
        : module_(std::make_shared<M>(std::move(module))),
          bytes_(sizeof(M)),
          run_([](const Module& m, const Tensor& x) -> Tensor {
            return static_cast<const M&>(m)(x);
          }) {}
    Tensor operator()(const Tensor& x) const { return run_(*module_, x); }
    Module& module() const { return *module_; }
    size_t bytes() const { return bytes_; }

   private:
    std::shared_ptr<Module> module_;
    size_t bytes_;
    Tensor (*run_)(const Module&, const Tensor&);
  };

  Sequential() = default;
  Sequential(std::initializer_list<Step> steps) : steps_(steps) {}
  void push_back(Step step) { steps_.push_back(std::move(step)); }
  size_t size() const { return steps_.size(); }
  Module& operator[](size_t i) const {
    return steps_[detail::checked_index("Sequential", i, size())].module();
  }

  Tensor operator()(Tensor x) const {
    for (const Step& step : steps_) x = step(x);
    return x;
  }
  std::vector<Field> fields() override;

 private:
  std::vector<Step> steps_;
};

namespace detail {
/// The arguments streamed together: for extra_repr.
template <class... Args>
std::string text(const Args&... args) {
  TextStream out;
  (out << ... << args);
  return out.str();
}
/// "ln_1, attn" -> {"ln_1", "attn"}
std::vector<std::string> split_names(const char* list);
/// The fields of `base`, then `fields` with their names.
std::vector<Field> named_fields(std::vector<Field> base, const std::vector<std::string>& names,
                                std::initializer_list<Field> fields);

/// Tells a type from a member: (Base)-kind is a cast to Base, (member)-kind is the operator below.
struct FieldKind {
  template <class M, class = std::enable_if_t<std::is_base_of_v<Module, M>>>
  operator M() const;
  FieldKind operator-() const;
  Field as_field(Field field) const { return field; }
};
template <class Member>
Field operator-(Member& member, const FieldKind&) {
  return member;
}
}  // namespace detail

template <class T>
Field::Field(std::vector<T>& items) {
  struct List : Module {
    std::vector<T>* items;
    std::vector<Field> fields() override { return detail::numbered_fields(*items); }
  };
  auto list = std::make_shared<List>();
  list->items = &items;
  module = list.get();
  owned = std::move(list);
}

}  // namespace ink

/// Names the fields of a module: parameters, buffers and modules, in the order in which they are
/// listed, printed and saved. The first may be the module type that this one extends; its fields
/// then come first, and more fields need not follow. A member that is forgotten is an error as soon
/// as anyone, such as an optimizer, calls parameters(), which says what it finds.
#define INK_FIELDS(first, ...)                                                                   \
  std::vector<::ink::Field> fields() override {                                                  \
    return [this](auto ink_kind) {                                                               \
      using ink_first = decltype((first)-ink_kind);                                              \
      if constexpr (std::is_same_v<ink_first, ::ink::Field>) {                                   \
        static const auto ink_names =                                                            \
            ::ink::detail::split_names(#first __VA_OPT__(", ") #__VA_ARGS__);                    \
        return ::ink::detail::named_fields(                                                      \
            {}, ink_names, {ink_kind.as_field((first)-ink_kind) __VA_OPT__(, ) __VA_ARGS__});    \
      } else {                                                                                   \
        static const auto ink_names = ::ink::detail::split_names(#__VA_ARGS__);                  \
        return ::ink::detail::named_fields(this->ink_first::fields(), ink_names, {__VA_ARGS__}); \
      }                                                                                          \
    }(::ink::detail::FieldKind());                                                               \
  }                                                                                              \
  size_t object_bytes() const override { return sizeof(*this); }
