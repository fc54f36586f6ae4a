# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.80, < 7.0"
    }
  }
}

variable "endpoint" {
  description = "Address of the S3-compatible server."
  type        = string
  default     = "http://127.0.0.1:8333"
}

# Credentials of the server's administrator come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
provider "aws" {
  region                      = "us-east-1"
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_region_validation      = true
  skip_requesting_account_id  = true

  endpoints {
    s3  = var.endpoint
    iam = var.endpoint
    sts = var.endpoint
  }
}

module "rollouts" {
  source = "../../s3-compatible"

  bucket   = "rollouts"
  prefix   = "rl"
  endpoint = var.endpoint
}

output "exports" {
  description = "Lines for a shell."
  value       = module.rollouts.exports
}

output "credentials" {
  description = "By identity, the variables with its keys."
  sensitive   = true
  value       = module.rollouts.credentials
}

output "gym_yaml" {
  description = "Token capture for Gym's YAML."
  value       = module.rollouts.gym_yaml
}

output "policies" {
  description = "By identity, its policy as JSON."
  value       = module.rollouts.policies
}
