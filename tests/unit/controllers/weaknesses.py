"""Which tests show that each known weakness of controllers for this API is not here, by its number; or why it cannot be.

A test is named by its file under tests/ and its name without `test_`. W are about sandboxes and the controller around them, N
about networks.
"""

from __future__ import annotations

from typing import NamedTuple

BOX = "unit/controllers/sandbox/test_weaknesses.py"
STATUS = "unit/controllers/sandbox/test_status.py"
LIFE = "integration/controllers/test_sandbox.py"
FAULTS = "integration/controllers/test_sandbox_faults.py"
MIDST = "integration/controllers/test_sandbox_midst.py"
TEMPLATE = "unit/controllers/template/test_controller.py"
PLAN = "unit/controllers/template/test_plan.py"
POLICY = "unit/controllers/template/test_policy.py"
SANDBOX_MEASURES = "unit/controllers/metrics/test_pools_and_sandboxes.py"
CLAIM_MEASURES = "unit/controllers/metrics/test_claims.py"
PROTECTION = "unit/controllers/test_protection.py"
EVENTS = "hygiene/test_events_reference.py"


class Shown(NamedTuple):
    """By these tests. `but`: what of it stays as the contract has it, and why."""

    tests: tuple[tuple[str, str], ...]
    but: str = ""


class NotHere(NamedTuple):
    """There is nothing that could have the weakness."""

    because: str


def shown(*tests: tuple[str, str], but: str = "") -> Shown:
    return Shown(tests, but)


WEAKNESSES: dict[str, Shown | NotHere] = {
    "W1": shown(
        (BOX, "w1_no_pod_mounts_storage_of_somebody_else"),
        (LIFE, "storage_of_somebody_else_keeps_the_pod_away_until_it_is_gone"),
    ),
    "W2": shown((BOX, "w2_a_foreign_service_matters_only_to_who_asks_for_one")),
    "W3": shown((LIFE, "a_slow_start_is_three_reconciles_however_much_the_kubelet_says")),
    "W4": shown(
        (FAULTS, "w4_a_pod_that_the_cache_does_not_show_is_found_on_the_server"),
        (FAULTS, "w4_looking_again_before_the_watch_speaks_writes_nothing"),
    ),
    "W5": shown((BOX, "w5_a_departing_pod_is_not_ready_and_has_no_address")),
    "W6": shown(
        (BOX, "w6_every_delete_names_its_object"),
        (LIFE, "more_time_in_the_last_moment_saves_it"),
    ),
    "W7": shown(
        (BOX, "w7_a_lost_tracking_label_is_put_back"),
        (FAULTS, "w7_a_pod_outside_the_cache_is_taken_over"),
    ),
    "W8": shown((FAULTS, "w8_its_own_writes_do_not_wake_it")),
    "W9": shown((BOX, "w9_an_annotation_cannot_wedge_a_sandbox")),
    "W10": shown(
        (BOX, "w10_a_pod_that_was_made_from_another_spec_is_told_and_left_alone"),
        (BOX, "w10_nothing_is_told_of_pods_that_nobody_can_judge"),
        (BOX, "w10_how_a_spec_is_written_makes_no_difference"),
        (MIDST, "a_changed_spec_is_told_in_the_write_that_tells_its_generation"),
        but="the change itself reaches the next pod, as the field says",
    ),
    "W11": shown(
        (BOX, "w11_a_pod_that_has_ended_is_kept_and_told"),
        (BOX, "w11_an_eviction_says_why_and_what_to_do"),
        (LIFE, "storage_of_somebody_else_keeps_the_pod_away_until_it_is_gone"),
        but="the contract keeps pods that have ended; replacing them, and keeping storage, would need fields of their own",
    ),
    "W12a": shown(
        (BOX, "w12a_the_service_selects_by_something_that_is_unique"),
        (BOX, "w12a_a_template_cannot_claim_to_be_another_sandbox"),
        (BOX, "w12a_a_pod_of_an_earlier_version_is_labelled_before_the_selector_narrows"),
        (TEMPLATE, "n4_a_template_whose_name_has_the_hash_of_another_gets_no_policy_until_that_is_gone"),
        but="status.selector says what it always said: readers parse it",
    ),
    "W12b": shown(
        (BOX, "w12b_an_owner_that_does_not_exist_implies_nothing"),
        (BOX, "w12b_an_owner_of_a_kind_that_cannot_be_looked_up_implies_nothing"),
    ),
    "W12c": shown(
        (BOX, "w12c_taking_over_is_pinned_once_and_keeps_other_owners"),
        but="the spec of an adopted pod is not compared: whoever labels it adoptable says that it will do",
    ),
    "W12d": shown(
        (BOX, "w12d_a_volume_template_cannot_give_its_storage_away"),
        but="the tracking label still lets a new sandbox of the same name take orphans: that is what orphaning is for",
    ),
    "W12e": shown((BOX, "w12e_the_annotation_leads_only_to_a_pod_that_consents")),
    "W13": NotHere("v1alpha1 is not served"),
    "W14": shown(
        (BOX, "w14_what_a_scheduler_says_is_made_to_fit"),
        (BOX, "w14_what_a_server_answers_is_made_to_fit"),
        (BOX, "w14_a_pod_that_reports_nonsense_is_quoted_as_unknown"),
    ),
    "W15": NotHere("one version is served, so there is no conversion webhook and no certificate for one"),
    "W16": shown(
        ("unit/loop/test_manager.py", "starts_in_order_works_and_stops_in_order"),
        ("unit/loop/test_manager.py", "a_cache_that_does_not_fill_is_named_with_its_trouble"),
    ),
    "W17": shown(
        ("hygiene/test_documents.py", "the_reference_names_every_command_and_flag"),
        ("hygiene/test_conditions_reference.py", "the_page_has_every_reason"),
    ),
    "W18": shown(
        (SANDBOX_MEASURES, "a_start_is_timed_to_the_millisecond_also_without_a_claim"),
        (SANDBOX_MEASURES, "annotations_of_tenants_never_become_labels"),
        (SANDBOX_MEASURES, "the_number_of_names_is_bounded"),
        (CLAIM_MEASURES, "the_headline_is_not_empty_without_a_webhook"),
    ),
    "W19": shown(
        (BOX, "w19_everything_owned_goes_at_the_end_and_only_once"),
        (BOX, "w19_an_end_is_one_status_however_often_it_is_looked_at"),
        (LIFE, "expiry_is_on_time_and_by_policy"),
    ),
    "W20": shown(
        (BOX, "w20_trouble_never_takes_ready_away"),
        (FAULTS, "w20_a_failure_that_lasts_is_told_beside_ready_and_taken_back"),
    ),
    "W21": shown(
        (BOX, "w21_no_annotation_for_a_pod_of_the_sandboxs_own_name"),
        (LIFE, "a_sandbox_becomes_ready_in_two_writes"),
    ),
    "W22": shown((MIDST, "w22_a_normal_life_logs_nothing")),
    "W23": shown(
        ("deploy/test_rules.py", "what_is_granted_is_used"),
        ("deploy/test_rules.py", "no_rule_is_wide"),
        ("deploy/test_rules.py", "definitions_and_the_lease_are_named"),
        ("deploy/test_chart.py", "in_some_namespaces_there_are_roles_only"),
        ("deploy/test_chart.py", "the_pods_keep_the_strictest_standard"),
        but="metrics are served without asking who reads them: a NetworkPolicy or the binding to an address decides that",
    ),
    "W24": shown(
        (BOX, "w24_people_are_told_what_matters_and_no_more"),
        (BOX, "w24_another_thing_to_do_is_told_and_another_failure_is_not"),
        (BOX, "w24_a_pause_and_its_end_are_told"),
        (EVENTS, "the_page_has_every_event"),
    ),
    "W25": shown(
        (BOX, "w25_the_pod_of_the_expected_name_is_the_one"),
        (BOX, "w25_suspension_ends_all_of_several_pods"),
        (BOX, "w25_several_pods_are_one_warning"),
        (BOX, "w25_of_several_pods_those_that_go_do_not_count"),
        but="of several pods none of which has the expected name, none is picked: any choice could throw work away",
    ),
    "W26": shown(
        (FAULTS, "w7_a_pod_outside_the_cache_is_taken_over"),
        but="which objects a cache sees is chosen where it is made; sharding comes with the deployment",
    ),
    "W26b": shown(
        (SANDBOX_MEASURES, "a_step_looks_at_nothing_but_its_object"),
        (CLAIM_MEASURES, "only_the_leader_counts"),
    ),
    "W27": shown(
        (BOX, "w27_conditions_are_a_map_and_people_see_mode_address_and_node"),
        (STATUS, "a_new_generation_is_told"),
        but="each condition carries its observedGeneration; fields for idle times and checkpoints do not exist yet",
    ),
    "N1": shown(
        (TEMPLATE, "the_policy_outlives_its_template_until_the_last_pod_is_gone"),
        (TEMPLATE, "leftovers_are_found_after_a_restart"),
        (PLAN, "a_policy_that_the_template_owns_is_freed"),
    ),
    "N2": shown(
        (PROTECTION, "a_policy_that_is_not_there_is_waited_for"),
        (PROTECTION, "one_that_we_are_about_to_delete_protects_nobody"),
        (PROTECTION, "a_foreign_policy_of_that_name_protects_nobody_and_the_way_out_is_told"),
        (PLAN, "the_policy_is_made_before_anything_else_and_has_no_owner"),
        ("integration/controllers/test_pool.py", "no_member_before_its_network_policy"),
        ("integration/controllers/test_claim.py", "no_cold_sandbox_before_the_walls_stand"),
    ),
    "N3": shown(
        (TEMPLATE, "a_template_gets_its_label_and_its_policy_in_two_writes"),
        (POLICY, "what_a_server_fills_in_makes_no_difference"),
    ),
    "N4": shown(
        (TEMPLATE, "n4_a_template_whose_name_has_the_hash_of_another_gets_no_policy_until_that_is_gone"),
        (TEMPLATE, "n4_a_policy_that_a_gone_template_left_behind_counts_too"),
        (PLAN, "a_foreign_policy_is_never_touched_and_told"),
        ("unit/controllers/assigner/test_facts.py", "perfect_labels_without_a_pool_that_controls_it_are_not_enough"),
    ),
    "N5": shown(
        (POLICY, "where_the_router_is_can_be_chosen"),
        ("unit/model/test_blueprint.py", "secure_defaults"),
        ("unit/controllers/claim/test_blueprint.py", "an_explicit_dns_policy_is_kept"),
        but="the public resolvers are a default only: a template that sets dnsPolicy keeps its own",
    ),
}
