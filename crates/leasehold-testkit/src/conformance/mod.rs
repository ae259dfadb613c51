//! The behaviour of every engine, one function per behaviour.
//!
//! The list of all cases is [`conformance_cases!`](crate::conformance_cases) and nothing else. Each carries the ids of the rows
//! in `docs/behaviours.md` that it shows, and a test compares the two.
//!
//! A case holds under a paused clock and in real time: no upper bound is tighter than "some time", no lower bound is missing, and
//! no case depends on how fast an engine replies.

#![expect(missing_docs, reason = "the rows of `docs/behaviours.md` describe the cases")]
#![expect(clippy::missing_errors_doc, clippy::missing_panics_doc, reason = "a case fails by both")]

mod common;
mod outcome;

pub mod blocking;
pub mod cancel;
pub mod contention;
pub mod events;
pub mod fair;
pub mod fenced;
pub mod group;
pub mod identity;
pub mod latch;
pub mod lease;
pub mod leased_semaphore;
pub mod listing;
pub mod lock;
pub mod loss;
pub mod min_hold;
pub mod multi;
pub mod names;
pub mod non_reentrant;
pub mod owner;
pub mod reentry;
pub mod renewal;
pub mod run;
pub mod rw;
pub mod rw_lease;
pub mod rw_owner;
pub mod rw_turns;
pub mod semaphore;
pub mod setnx;
pub mod shutdown;
pub mod spin;
pub mod stats;
pub mod takeover;
pub mod waiting;

use std::time::Duration;

use tokio::time::timeout;

pub use self::outcome::{Failed, Outcome};
use crate::bench::{Backend, Bench};

/// One case of the suite.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The name of its function.
    pub name: &'static str,
    /// The rows of `docs/behaviours.md` that it shows.
    pub ids: &'static [&'static str],
}

/// All cases.
pub const CASES: &[Case] = crate::conformance_cases!(conformance_table []);

/// Runs one case on a separate bench, and checks that it ends and leaves nothing behind.
pub async fn run(backend: impl Backend + 'static, case: impl AsyncFnOnce(&Bench) -> Outcome) -> Outcome {
    let bench = Bench::new(backend);
    let done = timeout(LONGEST_CASE, async {
        match case(&bench).await {
            Err(failed) if failed.unsupported().is_some_and(|what| bench.lacks(what)) => {
                println!("not a case for this engine: {failed:?}");
            }
            outcome => outcome?,
        }
        bench.nothing_is_left().await;
        Ok(())
    });
    done.await.expect("a case ends")
}

/// Several times what the slowest case takes in real time.
const LONGEST_CASE: Duration = Duration::from_secs(60);

/// Makes one test of every case, in a module named after the engine.
///
/// `paused` is for engines whose time is tokio's, so that a test clock moves it; all others use `real_time`. The expression makes
/// a [`Backend`](crate::bench::Backend), for each case anew. It is placed in an async function of a separate module: write full
/// paths, and `.await` if need be.
///
/// ```
/// leasehold_testkit::conformance! { memory, paused, leasehold_testkit::bench::Memory::new() }
/// ```
#[macro_export]
macro_rules! conformance {
    ($engine:ident, paused, $backend:expr) => {
        $crate::conformance_cases! { conformance_tests [$engine [tokio::test(start_paused = true)] $backend] }
    };
    ($engine:ident, real_time, $backend:expr) => {
        $crate::conformance_cases! { conformance_tests [$engine [tokio::test] $backend] }
    };
}

/// The list of all cases, handed to the macro `$then` of this crate, by group: `["id", …] => function`.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            lock {
                ["LK-01"] => lk_01_a_lock_is_reported_locked_from_acquire_to_release,
                ["LK-07"] => lk_07_a_lock_handle_can_be_reused,
                ["HD-01", "CX-13"] => hd_01_a_second_try_returns_none_while_the_lock_is_held,
                ["LK-10"] => lk_10_force_unlock_frees_the_lock_for_all_clients,
                ["HD-16"] => hd_16_dropping_a_guard_releases_the_lock,
                ["HD-03"] => hd_03_durations_out_of_range_are_refused,
                ["HD-23", "CX-01"] => hd_23_a_client_with_an_unknown_url_or_an_invalid_option_is_refused,
                ["OWN-11"] => own_11_a_try_succeeds_right_after_a_guard_is_dropped,
                ["OWN-12"] => own_12_a_release_is_carried_out_though_its_future_is_dropped,
                ["OWN-13"] => own_13_all_queries_about_a_hold_agree,
            }
            names {
                ["HD-02"] => hd_02_locks_with_different_names_are_independent,
                ["HD-09", "HD-27"] => hd_09_unusual_lock_names_work_and_invalid_lock_names_are_refused,
                ["HD-10"] => hd_10_lock_names_are_case_sensitive,
                ["HD-21"] => hd_21_a_namespace_is_a_prefix_of_the_lock_name,
            }
            owner {
                ["LK-03"] => lk_03_an_owner_holds_the_lock_from_acquire_to_release,
                ["LK-04"] => lk_04_a_thread_does_not_hold_the_lock_of_another_thread,
                ["LK-05"] => lk_05_a_hold_belongs_to_its_owner_and_not_to_the_handle,
                ["LK-09"] => lk_09_only_the_owner_can_release_the_lock,
                ["HD-04"] => hd_04_a_second_release_is_an_error_and_does_not_affect_the_next_hold,
                ["OWN-14"] => own_14_the_printed_form_of_an_owner_identifies_the_same_owner,
                ["OWN-34"] => own_34_only_the_client_of_an_owner_acquires_and_releases_in_its_name,
                ["OWN-35"] => own_35_the_generated_owner_of_a_guard_can_be_named,
                ["OWN-15"] => own_15_a_release_in_the_owners_name_ends_the_guard_of_the_owner,
            }
            identity {
                ["OWN-401"] => own_401_the_holder_of_a_lock_is_traced_to_its_client,
                ["OWN-402"] => own_402_an_anonymous_client_publishes_nothing,
                ["OWN-403"] => own_403_a_wait_that_times_out_names_the_holder,
                ["OWN-404"] => own_404_the_waiters_for_a_lock_are_counted,
                ["OWN-405"] => own_405_the_queue_of_a_fair_lock_is_traced_to_its_clients,
            }
            listing {
                ["OWN-450"] => own_450_the_locks_that_are_held_are_listed_with_their_holders,
                ["OWN-451"] => own_451_a_pattern_selects_names_within_the_namespace,
                ["OWN-452"] => own_452_the_kind_of_a_lock_is_found_by_its_name,
                ["OWN-453"] => own_453_readers_and_writers_are_listed,
                ["OWN-454"] => own_454_a_group_is_listed_as_long_as_a_value_is_held,
                ["OWN-455"] => own_455_setnx_locks_are_listed_if_they_are_asked_for,
            }
            reentry {
                ["LK-08"] => lk_08_an_owner_re_enters_and_other_owners_stay_out,
                ["RL-02"] => rl_02_a_partial_release_keeps_the_lease_of_the_hold,
                ["OWN-16"] => own_16_dropping_an_inner_guard_keeps_the_outer_guard_held,
                ["OWN-17"] => own_17_a_lease_still_ends_after_a_partial_release,
                ["OWN-18"] => own_18_re_entering_with_a_lease_sets_the_lease_of_the_whole_hold,
                ["OWN-19"] => own_19_a_lost_hold_cannot_be_re_entered,
            }
            lease {
                ["LK-11"] => lk_11_a_waiter_acquires_the_lock_when_the_lease_expires,
                ["LK-12"] => lk_12_a_release_after_the_lease_expired_is_an_error,
                ["RL-01", "CX-01"] => rl_01_the_remaining_time_is_that_of_the_lease_or_of_the_watchdog,
                ["HD-29"] => hd_29_the_end_of_a_lease_is_reported_as_a_loss,
                ["OWN-01"] => own_01_a_stale_guard_does_not_affect_the_next_holder,
                ["OWN-02"] => own_02_a_stale_guard_does_not_affect_the_next_hold_of_the_same_owner,
                ["OWN-03"] => own_03_a_guard_reports_its_loss_before_the_lock_is_granted_again,
                ["OWN-06"] => own_06_max_hold_ends_a_lock_without_a_lease,
                ["OWN-07"] => own_07_extend_moves_the_end_of_the_lease,
                ["OWN-08"] => own_08_extend_never_shortens_a_lease,
                ["OWN-09"] => own_09_extend_never_revives_a_lost_lock,
                ["OWN-10"] => own_10_extend_does_not_exceed_max_hold,
                ["OWN-36"] => own_36_re_entry_and_partial_release_do_not_revert_an_extension,
                ["OWN-37"] => own_37_a_waiter_acquires_the_lock_when_a_lease_set_by_re_entry_expires,
                ["OWN-209"] => own_209_a_waiter_acquires_the_lock_when_the_lease_of_the_waiter_before_expires,
            }
            renewal {
                ["HD-20", "HD-30", "CX-08"] => hd_20_a_renewed_lock_outlasts_its_watchdog_time_out,
                ["CX-09"] => cx_09_a_waiter_of_the_same_client_waits_for_the_release,
                ["WD-06", "WD-07"] => wd_06_renewal_stops_after_the_last_release,
                ["OWN-20"] => own_20_a_lock_is_renewed_again_when_acquired_after_a_pause,
                ["OWN-21"] => own_21_a_guard_is_renewed_after_its_client_handle_is_dropped,
            }
            loss {
                ["HD-11", "HD-15"] => hd_11_a_release_is_not_reported_as_a_loss,
                ["HD-12", "CX-04", "HD-27"] => hd_12_a_removed_lock_is_reported_lost_to_its_holder,
                ["CX-19"] => cx_19_a_client_continues_to_work_after_all_keys_are_deleted,
                ["OWN-22"] => own_22_a_removed_lock_is_lost_before_its_lease_expires,
                ["OWN-33"] => own_33_the_guards_of_a_removed_lock_do_not_affect_the_next_owner,
                ["OWN-23"] => own_23_all_guards_and_listeners_of_a_hold_are_notified_of_its_loss,
                ["OWN-24"] => own_24_run_stops_its_work_when_the_lock_is_lost,
            }
            run {
                ["OWN-330"] => own_330_run_holds_the_lock_while_its_work_runs_and_releases_it,
                ["OWN-331"] => own_331_run_without_the_lock_begins_no_work,
                ["OWN-332"] => own_332_run_drops_its_work_when_the_lock_is_lost,
                ["OWN-333"] => own_333_run_returns_the_error_of_its_work_unchanged,
                ["OWN-334"] => own_334_run_reports_a_lock_that_was_gone_before_its_release,
                ["OWN-335"] => own_335_run_releases_the_lock_when_its_work_panics,
                ["OWN-336"] => own_336_run_dropped_at_any_point_leaves_nothing,
                ["OWN-337"] => own_337_blocking_work_has_the_same_outcomes,
                ["OWN-338"] => own_338_work_runs_under_both_halves_of_a_read_write_lock,
                ["OWN-339"] => own_339_work_runs_under_a_fair_lock,
                ["OWN-340"] => own_340_work_under_a_fenced_lock_has_its_token,
                ["OWN-341"] => own_341_work_runs_under_several_locks,
                ["OWN-342"] => own_342_work_runs_under_permits,
                ["OWN-343"] => own_343_work_runs_under_leased_permits,
            }
            min_hold {
                ["OWN-346"] => own_346_a_lock_stays_taken_until_its_least_time_is_over,
                ["OWN-347"] => own_347_a_lock_held_for_longer_than_its_least_time_is_free_at_once,
                ["OWN-348"] => own_348_the_least_time_counts_for_the_last_guard,
                ["OWN-349"] => own_349_every_kind_of_lock_has_a_least_time,
                ["OWN-350"] => own_350_both_halves_of_a_read_write_lock_have_a_least_time,
                ["OWN-351"] => own_351_leased_permits_have_a_least_time,
                ["OWN-352"] => own_352_a_least_time_that_cannot_be_kept_is_refused,
                ["OWN-353"] => own_353_a_lock_that_was_lost_is_not_left_taken,
                ["OWN-378"] => own_378_a_downgraded_lock_takes_its_least_time_along,
                ["OWN-379"] => own_379_a_lock_that_is_left_taken_is_so_for_its_own_owner,
                ["OWN-380"] => own_380_a_report_of_progress_is_expected_of_no_other_request,
                ["OWN-354"] => own_354_a_lock_is_kept_while_its_work_reports_progress,
                ["OWN-377"] => own_377_a_wait_may_be_longer_than_work_without_progress,
                ["OWN-355"] => own_355_work_without_progress_is_dropped,
                ["OWN-356"] => own_356_progress_of_a_fixed_lease_is_refused,
            }
            blocking {
                ["OWN-357"] => own_357_a_blocked_wait_can_be_interrupted,
                ["OWN-358"] => own_358_a_wait_for_a_latch_or_permits_can_be_interrupted,
                ["OWN-359"] => own_359_work_that_would_wait_for_itself_is_refused,
            }
            stats {
                ["OWN-430"] => own_430_acquires_are_counted_by_their_outcome,
                ["OWN-431"] => own_431_waiters_and_guards_are_counted_while_they_are_there,
                ["OWN-432"] => own_432_no_waiter_and_no_guard_is_counted_for_ever,
                ["OWN-433"] => own_433_losses_are_counted_by_their_cause,
                ["OWN-434"] => own_434_locks_that_are_taken_away_are_counted_as_losses,
                ["OWN-435"] => own_435_a_lock_that_is_found_gone_by_its_release_is_a_loss,
                ["OWN-436"] => own_436_locks_of_every_kind_are_counted,
                ["OWN-437"] => own_437_permits_and_read_write_locks_are_counted,
            }
            events {
                ["OWN-440"] => own_440_events_tell_what_happens_to_locks,
                ["OWN-441"] => own_441_events_that_a_slow_receiver_missed_are_counted_in_their_place,
                ["OWN-448"] => own_448_receives_that_wait_together_get_an_event_each_and_all_end_with_the_client,
            }
            takeover {
                ["CX-05"] => cx_05_a_client_can_take_a_lock_over_from_itself,
                ["CX-06"] => cx_06_a_client_can_take_a_lock_over_from_another_client,
                ["OWN-25"] => own_25_queued_waiters_acquire_the_lock_after_a_take_over,
                ["OWN-26"] => own_26_a_take_over_acquires_a_free_lock,
            }
            waiting {
                ["HD-05", "HD-28", "HD-27"] => hd_05_a_wait_times_out_at_its_limit_and_a_try_returns_at_once,
                ["LK-13"] => lk_13_a_wait_keeps_its_limit_when_the_client_of_the_holder_is_gone,
                ["OWN-04"] => own_04_waiters_of_one_client_are_served_in_fifo_order,
                ["OWN-27"] => own_27_a_wait_of_zero_is_one_try,
                ["OWN-28"] => own_28_force_unlock_wakes_the_next_waiter,
            }
            cancel {
                ["HD-06"] => hd_06_a_cancelled_waiter_ends_and_delays_no_other_acquire,
                ["HD-07", "CX-10"] => hd_07_an_operation_dropped_before_its_first_poll_does_nothing,
                ["CX-11", "CX-15"] => cx_11_waiters_cancelled_together_all_end,
                ["CX-12"] => cx_12_a_deadline_of_the_caller_ends_the_wait_and_the_hold,
                ["CX-16"] => cx_16_a_cancelled_holder_and_waiter_leave_nothing_behind,
                ["OWN-05"] => own_05_the_turn_of_a_cancelled_waiter_goes_to_the_next_waiter,
            }
            contention {
                ["LK-15"] => lk_15_threads_of_one_client_hold_the_lock_one_at_a_time,
                ["LK-16", "HD-08"] => lk_16_a_hundred_clients_hold_the_lock_one_at_a_time,
                ["LK-17"] => lk_17_a_lock_acquired_through_one_handle_is_released_through_another,
                ["LK-23"] => lk_23_many_tasks_on_few_lock_names_all_finish,
                ["RL-08"] => rl_08_short_waits_that_race_with_releases_never_block_the_lock_for_good,
                ["CX-03"] => cx_03_every_client_finishes_its_rounds,
                ["CX-14"] => cx_14_clients_that_only_try_acquire_the_lock_in_the_end,
            }
            fair {
                ["FL-01"] => fl_01_a_fair_lock_is_granted_in_queue_order_as_leases_expire,
                ["FL-02"] => fl_02_waiters_of_many_clients_are_served_in_fifo_order,
                ["FL-03"] => fl_03_many_waiters_all_acquire_the_fair_lock,
                ["FL-10"] => fl_10_a_try_neither_queues_nor_overtakes,
                ["FL-14"] => fl_14_a_waiter_that_gives_up_leaves_nothing_in_the_queue,
                ["OWN-100"] => own_100_the_next_waiter_is_served_when_a_waiter_leaves_the_queue,
                ["OWN-101"] => own_101_a_waiter_is_notified_of_its_queue_position,
                ["OWN-102"] => own_102_an_owner_re_enters_a_fair_lock_at_once,
                ["OWN-105"] => own_105_re_entering_a_non_reentrant_fair_lock_is_an_error_at_once,
                ["OWN-103"] => own_103_a_fair_and_a_plain_lock_of_one_name_are_one_lock,
                ["OWN-104"] => own_104_force_unlock_frees_a_fair_lock_for_its_next_waiter,
                ["OWN-477"] => own_477_force_unlock_of_a_fair_lock_wakes_a_waiter_of_the_plain_lock,
                ["OWN-106"] => own_106_two_waiters_of_one_owner_both_acquire_the_fair_lock,
            }
            multi {
                ["ML-01", "ML-05", "ML-08"] => ml_01_all_members_are_held_and_released_together,
                ["ML-02"] => ml_02_one_of_many_concurrent_tries_acquires_all_members,
                ["ML-04", "ML-07"] => ml_04_a_busy_member_leaves_the_other_members_free,
                ["ML-09"] => ml_09_a_wait_for_several_locks_lasts_its_whole_limit,
                ["ML-10"] => ml_10_a_wait_limit_covers_all_members_together,
                ["ML-06"] => ml_06_a_multi_lock_without_members_or_with_duplicates_is_refused,
                ["ML-11"] => ml_11_the_loss_of_one_member_is_the_loss_of_the_multi_lock,
                ["OWN-110"] => own_110_a_multi_lock_dropped_while_waiting_releases_its_members,
                ["OWN-111"] => own_111_the_lease_of_a_multi_lock_begins_with_its_last_member,
                ["OWN-112"] => own_112_a_multi_lock_can_combine_kinds_and_clients,
                ["OWN-113"] => own_113_tasks_that_want_some_of_the_same_locks_do_not_deadlock,
            }
            group {
                ["FM-01"] => fm_01_a_set_of_values_is_held_and_released_as_one,
                ["FM-02"] => fm_02_two_handles_on_a_set_count_for_one_owner,
                ["FM-03"] => fm_03_sets_are_renewed_while_their_guards_live,
                ["FM-04"] => fm_04_another_owner_does_not_acquire_a_held_set,
                ["FM-05"] => fm_05_a_waiter_acquires_a_set_when_the_lease_expires,
                ["OWN-180"] => own_180_disjoint_sets_do_not_wait_for_each_other,
                ["OWN-181"] => own_181_sets_of_one_owner_are_equal_or_disjoint,
                ["OWN-182"] => own_182_values_can_be_force_unlocked_and_taken_over,
                ["OWN-183"] => own_183_cancelled_waiters_for_sets_leave_nothing_behind,
                ["OWN-184"] => own_184_overlapping_sets_exclude_each_other,
                ["OWN-185"] => own_185_an_empty_set_or_a_duplicate_value_is_refused,
                ["OWN-186"] => own_186_a_set_supports_leases_limits_and_threads,
                ["OWN-241"] => own_241_a_set_can_have_thousands_of_values,
                ["OWN-242"] => own_242_a_set_can_be_acquired_by_retries_beside_queued_waiters,
            }
            spin {
                ["SP-01"] => sp_01_a_spinning_waiter_acquires_the_lock_after_the_release,
                ["SP-02", "OWN-40"] => sp_02_a_spinning_wait_with_a_limit_acquires_the_lock_or_ends_in_time,
                ["SP-04", "SP-05"] => sp_04_a_try_of_a_spin_lock_does_not_wait,
                ["OWN-41"] => own_41_a_spin_lock_is_the_plain_lock_of_that_name,
                ["OWN-42"] => own_42_a_spinning_waiter_can_be_cancelled,
                ["OWN-43"] => own_43_a_spinning_waiter_is_notified_of_a_shutdown,
                ["OWN-44"] => own_44_spinning_tasks_hold_the_lock_one_at_a_time,
            }
            non_reentrant {
                ["NR-01"] => nr_01_other_owners_wait_for_a_non_reentrant_lock,
                ["NR-02", "NR-03"] => nr_02_an_owner_does_not_re_enter_a_non_reentrant_lock,
                ["NR-04"] => nr_04_an_owner_is_the_same_through_every_handle,
                ["OWN-45"] => own_45_the_guard_of_a_non_reentrant_handle_does_not_re_enter,
                ["OWN-46"] => own_46_an_owner_with_an_expired_lease_acquires_a_non_reentrant_lock_anew,
            }
            fenced {
                ["FE-01", "FE-02", "FE-03", "FE-04"] => fe_01_tokens_count_from_one_for_every_way_to_acquire,
                ["OWN-47"] => own_47_a_fenced_lock_is_the_plain_lock_of_that_name,
                ["OWN-48"] => own_48_every_entry_of_a_fenced_lock_has_its_own_token,
                ["OWN-49"] => own_49_tokens_rise_however_a_hold_ends,
                ["OWN-50"] => own_50_tokens_rise_in_the_order_of_the_holds,
            }
            setnx {
                ["OWN-53"] => own_53_a_setnx_lock_has_one_holder_and_a_fifo_queue,
                ["OWN-54"] => own_54_a_setnx_lock_is_not_re_entered,
                ["OWN-55"] => own_55_all_queries_about_a_setnx_lock_agree,
                ["OWN-56"] => own_56_the_end_of_the_lease_of_a_setnx_lock_is_reported_as_a_loss,
                ["OWN-57"] => own_57_a_setnx_lock_is_renewed_while_its_guard_lives,
                ["OWN-58"] => own_58_a_removed_setnx_lock_is_lost_and_the_next_holder_is_not_affected,
                ["OWN-59"] => own_59_a_setnx_lock_can_be_force_unlocked_and_taken_over,
                ["OWN-60"] => own_60_a_setnx_lock_has_fencing_tokens,
                ["OWN-61"] => own_61_waiters_for_a_setnx_lock_can_be_cancelled,
                ["OWN-62"] => own_62_tasks_hold_a_setnx_lock_one_at_a_time,
                ["OWN-63"] => own_63_the_lease_of_a_setnx_lock_can_be_extended,
                ["OWN-71"] => own_71_a_setnx_lock_can_be_a_member_of_a_multi_lock,
            }
            semaphore {
                ["HD-24"] => hd_24_one_client_offers_locks_semaphores_and_latches,
                ["OWN-344"] => own_344_a_handle_sets_the_permits_that_are_not_set,
                ["SE-01"] => se_01_the_permits_of_a_semaphore_are_set_once,
                ["SE-02"] => se_02_a_semaphore_with_a_time_to_live_expires,
                ["SE-03"] => se_03_permits_can_be_added,
                ["SE-04"] => se_04_more_permits_can_be_removed_than_are_free,
                ["SE-05", "SE-26"] => se_05_the_number_of_free_permits_follows_every_acquire_and_release,
                ["SE-06", "SE-07"] => se_06_a_release_creates_a_missing_semaphore,
                ["SE-08"] => se_08_release_if_exists_does_not_create_a_semaphore,
                ["SE-10"] => se_10_zero_permits_are_acquired_at_once,
                ["SE-11"] => se_11_a_waiter_acquires_released_permits,
                ["SE-12"] => se_12_a_waiter_for_many_permits_waits_until_all_are_free,
                ["SE-15"] => se_15_tasks_of_one_client_hold_a_single_permit_one_at_a_time,
                ["SE-16", "SE-17"] => se_16_clients_hold_a_single_permit_one_at_a_time,
                ["SE-18"] => se_18_waiters_for_all_permits_and_waiters_for_one_all_succeed,
                ["SE-21"] => se_21_all_handles_of_a_semaphore_share_its_permits,
                ["SE-22"] => se_22_a_hundred_permits_of_a_semaphore_with_a_long_name_are_held_at_once,
                ["SE-23"] => se_23_as_many_tasks_work_at_once_as_there_are_permits,
                ["SE-24"] => se_24_invalid_semaphore_names_and_numbers_are_refused,
                ["SE-31"] => se_31_the_turn_of_a_cancelled_waiter_for_permits_goes_to_the_next_waiter,
                ["SE-30"] => se_30_a_wait_for_permits_ends_at_its_limit,
                ["OWN-80"] => own_80_dropped_permits_are_released,
                ["OWN-81"] => own_81_forgotten_permits_stay_acquired,
                ["OWN-82"] => own_82_a_waiter_for_many_permits_is_not_starved,
                ["OWN-83"] => own_83_as_many_waiters_are_woken_as_there_are_permits,
                ["OWN-84"] => own_84_setting_permits_wakes_existing_waiters,
                ["OWN-85"] => own_85_permits_of_a_deleted_semaphore_are_not_returned_to_the_next_semaphore,
                ["OWN-280"] => own_280_permits_of_an_expired_semaphore_are_not_returned_to_the_next_semaphore,
                ["OWN-281"] => own_281_permits_are_returned_to_a_semaphore_whose_time_to_live_was_removed,
                ["OWN-86"] => own_86_cancellation_racing_with_release_loses_no_permit,
                ["OWN-87"] => own_87_plain_threads_can_acquire_permits,
            }
            leased_semaphore {
                ["OWN-345"] => own_345_a_handle_sets_the_leased_permits_that_are_not_set,
                ["PS-01", "PS-02"] => ps_01_leased_permits_are_set_once,
                ["PS-03", "PS-04"] => ps_03_the_total_of_leased_permits_can_be_changed,
                ["PS-05"] => ps_05_leased_permits_can_be_added_and_removed,
                ["PS-06", "PS-07"] => ps_06_a_permit_is_identified_and_released_by_its_id,
                ["PS-08", "PS-09", "PS-11"] => ps_08_many_permits_are_acquired_and_released_together,
                ["PS-12", "PS-13"] => ps_12_a_list_of_ids_is_released_completely_or_not_at_all,
                ["PS-14", "PS-21"] => ps_14_an_unknown_permit_id_is_refused,
                ["PS-15"] => ps_15_a_permit_with_an_expired_lease_cannot_be_released,
                ["PS-16", "PS-17"] => ps_16_a_waiter_acquires_a_permit_when_the_lease_of_the_permit_expires,
                ["PS-18", "PS-19", "PS-20"] => ps_18_expired_permits_are_counted_as_free,
                ["PS-23"] => ps_23_the_lease_of_a_permit_can_be_changed,
                ["PS-24"] => ps_24_the_lease_of_a_permit_can_be_queried,
                ["PS-26"] => ps_26_an_expired_permit_can_be_acquired_again,
                ["PS-28", "PS-30"] => ps_28_releasing_a_list_with_expired_ids_frees_only_the_expired_permits,
                ["PS-32"] => ps_32_a_waiter_for_two_permits_is_woken_by_the_release_of_one,
                ["PS-33", "PS-34"] => ps_33_a_single_leased_permit_has_one_holder_at_a_time,
                ["OWN-200"] => own_200_permits_are_renewed_while_their_guard_lives,
                ["OWN-201"] => own_201_permits_of_a_client_that_is_gone_become_free,
                ["OWN-202"] => own_202_a_guard_of_permits_detects_the_end_of_their_lease,
                ["OWN-203"] => own_203_dropped_leased_permits_are_released,
                ["OWN-204"] => own_204_a_permit_released_by_its_id_is_lost_to_its_guard,
                ["OWN-205"] => own_205_a_waiter_for_many_leased_permits_is_not_starved,
                ["OWN-206"] => own_206_thousands_of_permits_expire_at_once,
                ["OWN-207"] => own_207_cancellation_racing_with_release_loses_no_leased_permit,
                ["OWN-208"] => own_208_plain_threads_can_acquire_leased_permits,
                ["OWN-240"] => own_240_waiters_acquire_a_permit_when_its_shortened_lease_expires,
            }
            latch {
                ["CD-01", "CD-02"] => cd_01_the_count_of_a_latch_is_set_once,
                ["CD-03", "CD-04"] => cd_03_a_latch_counts_down_to_zero_and_no_further,
                ["CD-05"] => cd_05_a_latch_that_was_never_set_is_open,
                ["CD-06"] => cd_06_a_wait_for_a_latch_keeps_its_limit,
                ["CD-08", "CD-10", "CD-11"] => cd_08_all_waiters_are_released_when_the_latch_reaches_zero,
                ["CD-09", "OWN-90"] => cd_09_deleting_a_latch_releases_its_waiters,
                ["OWN-91"] => own_91_plain_threads_can_wait_for_a_latch,
                ["OWN-92"] => own_92_a_shutdown_ends_the_wait_for_a_latch,
            }
            shutdown {
                ["LK-14"] => lk_14_a_lock_of_a_client_that_is_gone_expires,
                ["CX-17"] => cx_17_a_shutdown_ends_every_wait_and_every_hold,
                ["OWN-29"] => own_29_a_shutdown_waits_for_the_guards,
                ["OWN-30"] => own_30_a_shutdown_frees_no_lock_under_running_work,
                ["OWN-31"] => own_31_a_guard_that_ends_after_the_shutdown_frees_its_lock,
                ["OWN-38"] => own_38_a_queued_waiter_acquires_a_lock_that_a_shutdown_left_to_expire,
                ["OWN-32"] => own_32_a_client_in_shutdown_refuses_new_locks_and_other_clients_continue,
            }
            rw {
                ["RW-29"] => rw_29_many_readers_or_one_writer_hold_the_lock,
                ["RW-03"] => rw_03_the_write_half_is_free_after_the_last_reader,
                ["RW-04", "RW-05"] => rw_04_force_unlock_of_one_half_leaves_the_other_half_alone,
                ["RW-06", "RW-07"] => rw_06_no_owner_reads_while_another_owner_writes,
                ["RW-25", "RW-32"] => rw_25_read_write_locks_accept_unusual_names,
                ["RW-31"] => rw_31_durations_out_of_range_are_refused_on_both_halves,
                ["RW-35"] => rw_35_a_writer_acquires_the_lock_when_the_guard_of_a_reader_is_dropped,
                ["OWN-160"] => own_160_readers_never_see_a_partial_write,
                ["OWN-161"] => own_161_blocking_threads_never_see_a_partial_write,
                ["OWN-162"] => own_162_a_writer_can_have_a_fencing_token,
                ["OWN-163"] => own_163_both_halves_can_be_taken_over,
                ["OWN-178"] => own_178_a_take_over_of_the_read_half_admits_waiting_readers,
                ["OWN-164"] => own_164_a_removed_read_write_lock_is_lost_to_readers_and_writers,
                ["OWN-165"] => own_165_a_shutdown_counts_readers_and_writers,
            }
            rw_lease {
                ["RW-15"] => rw_15_re_entering_with_a_shorter_lease_does_not_shorten_the_hold,
                ["RW-17"] => rw_17_a_reader_that_releases_does_not_prolong_the_lease_of_another_reader,
                ["RW-18"] => rw_18_readers_acquire_the_lock_when_the_lease_of_a_writer_expires,
                ["RW-20"] => rw_20_many_readers_are_renewed,
                ["RW-21"] => rw_21_a_writer_that_reads_is_renewed_on_both_halves,
                ["RW-23"] => rw_23_a_reader_waits_for_no_other_reader,
                ["RW-24"] => rw_24_a_writer_with_an_expired_lease_has_lost_the_lock,
                ["RW-34"] => rw_34_a_reader_is_renewed_while_a_writer_waits,
                ["OWN-166"] => own_166_the_expired_lease_of_a_reader_frees_only_the_hold_of_that_reader,
                ["OWN-167"] => own_167_leases_of_readers_end_independently_of_each_other,
            }
            rw_owner {
                ["RW-08"] => rw_08_a_writer_may_also_read,
                ["RW-09"] => rw_09_a_writer_that_reads_still_reads_after_releasing_the_write_half,
                ["RW-12"] => rw_12_the_end_of_a_nested_read_does_not_end_the_write,
                ["RW-13"] => rw_13_each_half_is_queried_separately,
                ["OWN-168"] => own_168_an_owner_that_only_reads_cannot_wait_to_write,
                ["OWN-169"] => own_169_the_only_reader_can_upgrade,
                ["OWN-170"] => own_170_an_upgrade_beside_other_readers_is_refused,
                ["OWN-171"] => own_171_a_downgrade_admits_readers_and_no_writer,
                ["OWN-172"] => own_172_a_downgraded_or_upgraded_hold_ends_at_its_original_time,
                ["OWN-173"] => own_173_two_acquires_of_one_task_wait_for_each_other,
            }
            rw_turns {
                ["RW-14"] => rw_14_all_waiting_readers_acquire_the_lock_after_the_writer,
                ["RW-30"] => rw_30_a_waiting_writer_blocks_new_readers_under_prefer_writers,
                ["OWN-174"] => own_174_a_preferred_writer_does_not_starve,
                ["OWN-175"] => own_175_readers_are_admitted_when_a_preferred_writer_gives_up,
                ["OWN-176"] => own_176_an_unpolled_preferred_writer_blocks_readers_for_two_seconds_at_most,
                ["OWN-177"] => own_177_cancelled_readers_and_writers_leave_nothing_behind,
            }
        }
    };
}

/// The list as a table.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_table {
    ([] $($group:ident { $([$($id:literal),+] => $case:ident,)+ })+) => {
        &[$($($crate::conformance::Case { name: stringify!($case), ids: &[$($id),+] },)+)+]
    };
}

/// The list as tests of one engine.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    (
        [$engine:ident $attribute:tt $backend:expr]
        $($group:ident { $([$($id:literal),+] => $case:ident,)+ })+
    ) => {
        mod $engine {
            $($crate::conformance_tests! { @group $attribute $backend; $group $($case)+ })+
        }
    };
    (@group $attribute:tt $backend:expr; $group:ident $($case:ident)+) => {
        mod $group {
            $($crate::conformance_tests! { @case $attribute $backend; $group $case })+
        }
    };
    (@case [$($attribute:tt)+] $backend:expr; $group:ident $case:ident) => {
        #[$($attribute)+]
        async fn $case() -> $crate::conformance::Outcome {
            $crate::conformance::run($backend, $crate::conformance::$group::$case).await
        }
    };
}
