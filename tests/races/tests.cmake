# What runs under the thread sanitizer: tests that set a number of threads or start some, ops,
# layers and steps of training. Target `races` builds it, and `ctest --preset tsan` runs it.
set(with_threads test_attention_mask test_autocast test_data_parallel test_dataset test_dropout
    test_fused test_graph test_graph_threads test_index test_one_tensor test_optimizer test_random)
add_custom_target(races DEPENDS ${with_threads} inkling race)
set_tests_properties(${with_threads} PROPERTIES LABELS threads)

# Is the sanitizer told what happens before what, and does it notice a race?
add_executable(race races/race.cpp)
target_link_libraries(race PRIVATE inkling_driver_options inkling_cases)
add_test(NAME race_ordered COMMAND race ordered)
add_test(NAME race_unordered COMMAND race unordered)
set_tests_properties(race_unordered PROPERTIES PASS_REGULAR_EXPRESSION "data race .*race.cpp")
add_test(NAME race_ops COMMAND race ops)

# Threads that take a part of the batch each, and threads within each op.
set(runs ${CMAKE_CURRENT_BINARY_DIR}/races)
set(train inkling train --data ${PROJECT_SOURCE_DIR}/README.md --overwrite --max_iters 30
    --eval_interval 15 --eval_iters 2 --n_embd 32 --block_size 64)
add_test(NAME race_train_in_parts COMMAND ${train} --out_dir ${runs}/in_parts)
add_test(NAME race_train COMMAND ${train} --batch_size 1 --dropout 0.1 --out_dir ${runs}/ops)
add_test(NAME race_train_bf16 COMMAND ${train} --batch_size 1 --dtype bfloat16
  --out_dir ${runs}/bf16)
set(race_tests race_ordered race_unordered race_ops race_train_in_parts race_train
    race_train_bf16)
set_tests_properties(${race_tests} PROPERTIES LABELS threads)
